// Package goredis keeps bale's values in Redis through go-redis (v9).
//
// [NewStore] makes the Store of a typed bale.Cache. [NewHook] makes a hook that packs the values of
// a program that knows nothing of bale; one call puts it on the client:
//
//	err := hook.Install(rdb)
//
// # What the hook does
//
// It packs the values of SET and its relatives and of hashes as they are written, and unpacks them
// in the replies, in single commands, pipelines and transactions, with typed methods and with Do.
// Values that were stored without it are handed out as they are. A value that cannot be unpacked is
// the error of its command, a *bale.KeyError, and never handed out packed.
//
// Commands that work on a value's bytes inside the server (APPEND, GETRANGE, STRLEN, SETBIT, PFADD
// and their like) cannot work on packed ones: on keys in scope they fail with a [CommandError],
// before anything is sent. So do those that would take packed bytes out of the scope: RENAME and
// COPY to a key that is not in it, and DUMP. INCR and its kin work, for values below 64 bytes
// (bale.PackerOptions.MinSize) are never packed, nor are numbers that are not given as text.
//
// [HookOptions].Recorder is told what it does, as that of a bale.Cache is: what is read and
// written, how it is packed, hits, errors, times.
//
// # Rolling it out, and out again
//
//  1. Every process gets the hook with [HookOptions].ReadOnly: it unpacks, but does not pack. A
//     value that is itself a frame, as a user of the program may upload one, is escaped. A process
//     without the hook sees the header that this puts in front; NoEscape switches it off.
//  2. When all have it, ReadOnly is taken away process by process. Values are packed as they are
//     written.
//
// To leave, set ReadOnly everywhere; values become plain as they are rewritten or expire, but for
// escaped ones. Then take the hook away.
//
// # What it cannot do
//
//   - Scripts and functions (EVAL, FCALL) see packed bytes. They pass, unless
//     [HookOptions].RefuseScripts is set.
//   - The commands of modules read keys that the hook does not know of. They pass.
//   - Clients without the hook see packed bytes. So does the client that WithTimeout returns:
//     go-redis drops all hooks there. Call [Hook.Install] on it, too.
//   - Auto-pipelining with FullDuplex sends a command before a hook can change it. [Hook.Install]
//     refuses a client that is set to it. Auto-pipelining without FullDuplex works.
//   - Other hooks see packed values if they were added after this one, and plain ones if before.
//     Those on a cluster's nodes see packed ones.
package goredis
