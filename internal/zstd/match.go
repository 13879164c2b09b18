package zstd

import "math/bits"

// localTables find earlier positions of the value itself. They are not cleared between values:
// entries below base are of earlier ones.
type localTables struct {
	short      [1 << localBits]uint32
	base, next uint32 // an entry is base and the position in the value
	shift      uint8  // small values use the first entries only
}

const localBits = 13

// open prepares the tables for a value of n bytes.
func (e *Encoder) open(n int) {
	t := &e.local
	if t.next > 1<<32-1-MaxSize-1 { // an entry would be too large
		*t = localTables{}
		if e.chains != nil {
			*e.chains = chains{}
		}
	}
	t.base = max(t.next, 1)
	t.next = t.base + uint32(n)
	t.shift = uint8(64 - min(max(bits.Len(uint(n)), 8), localBits))
}

// ahead returns how many of the first n bytes of a from i on and b from j on are equal.
func ahead(a []byte, i int, b []byte, j, n int) int {
	k := 0
	for ; k+8 <= n; k += 8 {
		if x := load64(a, i+k) ^ load64(b, j+k); x != 0 {
			return k + bits.TrailingZeros64(x)>>3
		}
	}
	for k < n && load8(a, i+k) == load8(b, j+k) {
		k++
	}
	return k
}

// findFirst takes the first match at a position, one of eight bytes if there is. It writes the
// sequences and literals of src[from:to] into e.
func (d *Digest) findFirst(e *Encoder, src []byte, from, to int) int {
	content := d.content
	size := len(content)
	repeatable := uint(max(size-3, 0)) // positions in the content that have four bytes
	local := &e.local
	base := local.base
	shift := local.shift & 63
	longShift, shortShift := d.long.shift&63, d.short.shift&63
	long, short := d.long.entries, d.short.entries
	r1, r2, r3 := int(e.offsets[0]), int(e.offsets[1]), int(e.offsets[2])
	sequences, literals := e.sequences[:cap(e.sequences)], e.literals[:cap(e.literals)]
	ns, nl := 0, 0
	ip, anchor := from, from
	limit := to - 8
	longOnly := d.patience == fastPatience
	for ip < limit && ns < maxFound {
		v := load64(src, ip)
		xl := uint(v * multiplier >> longShift)
		hs := v << (64 - 8*shortHash) * multiplier
		is := hs >> shift & (1<<localBits - 1)
		// A position behind the value is of an earlier one.
		sp := uint(local.short[is] - base)
		local.short[is] = base + uint32(ip)
		at := ip
		var m, n, offset int // m is the position of the match, negative in the dictionary
		{
			hit := false
			ref := ip + 1 - r1
			if ref >= 0 {
				hit = load32(src, ref) == uint32(v>>8)
			} else if j := size + ref; uint(j) < repeatable {
				hit = load32(content, j) == uint32(v>>8)
			}
			if hit {
				ip++
				m, n = ref, 4
				goto extend
			}
		}
		if sp < uint(ip) && load64(src, int(sp)) == v {
			m, n = int(sp), 8
			goto extend
		}
		if entry := elem(long, xl>>tagBits); uint8(entry) == uint8(xl) {
			if j := int(entry>>tagBits) - 1; j >= 0 && load64(content, j) == v {
				m, n = j-size, 8
				goto extend
			}
		}
		if longOnly {
			ip += 1 + (ip-anchor)>>d.patience
			continue
		}
		if sp < uint(ip) && load32(src, int(sp)) == uint32(v) {
			m, n = int(sp), 4
		} else {
			x := uint(hs >> shortShift)
			entry := elem(short, x>>tagBits)
			j := int(entry>>tagBits) - 1
			if uint8(entry) != uint8(x) || j < 0 || load32(content, j) != uint32(v) {
				ip += 1 + (ip-anchor)>>d.patience
				continue
			}
			m, n = j-size, 4
		}
		if k := ip + 1; k < limit { // a long match there is worth a literal
			v1 := load64(src, k)
			h1 := v1 * multiplier
			x := uint(h1 >> longShift)
			if entry := elem(long, x>>tagBits); uint8(entry) == uint8(x) {
				if j := int(entry>>tagBits) - 1; j >= 0 && load64(content, j) == v1 {
					ip = k
					m, n = j-size, 8
					goto extend
				}
			}
		}
	extend:
		offset = ip - m
		if m >= 0 {
			n += ahead(src, m+n, src, ip+n, to-ip-n)
			for ip > anchor && m > 0 && load8(src, ip-1) == load8(src, m-1) {
				ip, m, n = ip-1, m-1, n+1
			}
		} else {
			j := size + m
			n += ahead(content, j+n, src, ip+n, min(to-ip, size-j)-n)
			if j+n == size {
				n += ahead(src, 0, src, ip+n, to-ip-n)
			}
			for ip > anchor && j > 0 && load8(src, ip-1) == load8(content, j-1) {
				ip, j, n = ip-1, j-1, n+1
			}
		}
		if n < 8 && offsetSize(uint32(offset)+3) > uint32(d.farthest[n]) && offset != r1 {
			ip = at + 1
			continue
		}
		count := ip - anchor
		if count <= 16 && anchor+16 <= len(src) {
			store64(literals, nl, load64(src, anchor))
			store64(literals, nl+8, load64(src, anchor+8))
		} else {
			copy(literals[nl:], src[anchor:ip])
		}
		nl += count
		// As repeatCode does, but in registers: a call takes 5% of the time of the whole.
		code := uint32(offset) + 3
		if count > 0 {
			switch offset {
			case r1:
				code = 1
			case r2:
				code = 2
				r1, r2 = r2, r1
			case r3:
				code = 3
				r1, r2, r3 = r3, r1, r2
			default:
				r1, r2, r3 = offset, r1, r2
			}
		} else {
			switch offset {
			case r2:
				code = 1
				r1, r2 = r2, r1
			case r3:
				code = 2
				r1, r2, r3 = r3, r1, r2
			case r1 - 1:
				code = 3
				r1, r2, r3 = offset, r1, r2
			default:
				r1, r2, r3 = offset, r1, r2
			}
		}
		sequences[ns] = found{uint16(count), uint16(n), code}
		ns++
		start := ip
		ip += n
		anchor = ip
		if ip < limit {
			w := load64(src, start+2)
			local.short[w<<(64-8*shortHash)*multiplier>>shift&(1<<localBits-1)] = base + uint32(start+2)
			w = load64(src, ip-2)
			local.short[w<<(64-8*shortHash)*multiplier>>shift&(1<<localBits-1)] = base + uint32(ip-2)
			for ip < limit && ns < maxFound {
				// The match before the last may go on here, by four bytes or more.
				ref := ip - r2
				n := 0
				if ref >= 0 {
					if load32(src, ref) == load32(src, ip) {
						n = 4 + ahead(src, ref+4, src, ip+4, to-ip-4)
					}
				} else if j := size + ref; uint(j) < repeatable && load32(content, j) == load32(src, ip) {
					n = 4 + ahead(content, j+4, src, ip+4, min(to-ip, size-j)-4)
					if j+n == size {
						n += ahead(src, 0, src, ip+n, to-ip-n)
					}
				}
				if n == 0 {
					break
				}
				sequences[ns] = found{0, uint16(n), 1}
				ns++
				r1, r2 = r2, r1
				ip += n
				anchor = ip
			}
		}
	}
	if ns == maxFound {
		to = anchor
	}
	nl += copy(literals[nl:], src[anchor:to])
	e.sequences, e.literals = sequences[:ns], literals[:nl]
	e.offsets = [3]uint32{uint32(r1), uint32(r2), uint32(r3)}
	return to
}
