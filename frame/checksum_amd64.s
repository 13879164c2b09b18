#include "textflag.h"

// func hasInstructions() bool
TEXT ·hasInstructions(SB), NOSPLIT, $0-1
	MOVL $1, AX
	XORL CX, CX
	CPUID
	ANDL $(1<<20 | 1<<1), CX // SSE4.2 and PCLMULQDQ
	CMPL CX, $(1<<20 | 1<<1)
	SETEQ ret+0(FP)
	RET

// func checksumLanes(p *byte, length, lane int, shift2, shift1 uint64) uint32
TEXT ·checksumLanes(SB), NOSPLIT, $0-44
	MOVQ p+0(FP), SI
	MOVQ length+8(FP), R9
	MOVQ lane+16(FP), CX
	MOVL $-1, AX
	XORL BX, BX
	XORL DX, DX
	LEAQ (SI)(CX*1), DI
	LEAQ (SI)(CX*2), R8
	LEAQ (CX)(CX*2), R10
	SUBQ R10, R9 // what is left after the lanes
	SHRQ $3, CX

	// The lanes do not wait for each other: an instruction takes three cycles, and one can start in each.
lanes:
	CRC32Q (SI), AX
	CRC32Q (DI), BX
	CRC32Q (R8), DX
	ADDQ   $8, SI
	ADDQ   $8, DI
	ADDQ   $8, R8
	DECQ   CX
	JNZ    lanes

	// The first two, moved past the lanes that follow them: a carry-less product, reduced by the instruction itself.
	MOVQ      AX, X0
	MOVQ      shift2+24(FP), X1
	PCLMULQDQ $0, X1, X0
	MOVQ      BX, X2
	MOVQ      shift1+32(FP), X3
	PCLMULQDQ $0, X3, X2
	PXOR      X2, X0
	MOVQ      X0, BX
	XORL      AX, AX
	CRC32Q    BX, AX
	XORL      DX, AX

	// R8 is behind the third lane.
words:
	CMPQ   R9, $8
	JLT    bytes
	CRC32Q (R8), AX
	ADDQ   $8, R8
	SUBQ   $8, R9
	JMP    words

bytes:
	TESTQ  R9, R9
	JEQ    done
	CRC32B (R8), AX
	INCQ   R8
	DECQ   R9
	JMP    bytes

done:
	NOTL AX
	MOVL AX, ret+40(FP)
	RET

// func update(crc uint32, p *byte, length int) uint32
TEXT ·update(SB), NOSPLIT, $0-28
	MOVL crc+0(FP), AX
	MOVQ p+8(FP), SI
	MOVQ length+16(FP), CX
	NOTL AX
	CMPQ CX, $8
	JLT  rest

word:
	CRC32Q (SI), AX
	ADDQ   $8, SI
	SUBQ   $8, CX
	CMPQ   CX, $8
	JGE    word

rest:
	TESTQ  CX, CX
	JEQ    end

byte:
	CRC32B (SI), AX
	INCQ   SI
	DECQ   CX
	JNZ    byte

end:
	NOTL AX
	MOVL AX, ret+24(FP)
	RET
