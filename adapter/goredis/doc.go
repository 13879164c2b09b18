// Package goredis keeps bale's values in Redis through go-redis (v9).
//
// [NewStore] makes the Store of a typed bale.Cache. [NewHook] makes a hook that packs the values of
// a program that knows nothing of bale; one call puts it on the client:
//
//	err := hook.Install(rdb)
//
// # The hook
//
// The hook packs values as they are written: those of SET and its variants, and those of hashes. It
// unpacks them in the replies. It works in single commands, pipelines and transactions, with typed
// methods and with Do. Plain values, stored without the hook, are returned unchanged. If a value
// cannot be unpacked, its command fails with a *bale.KeyError. The hook never returns a packed
// value.
//
// Some commands work on a value's bytes inside the server: APPEND, GETRANGE, STRLEN, SETBIT, PFADD
// and others. They cannot work on packed bytes, so on keys in scope they fail with a [CommandError]
// before anything is sent. Commands that would take packed bytes out of the scope fail likewise:
// RENAME and COPY to a key outside it, and DUMP. INCR and its variants work. Values below 64 bytes
// (bale.PackerOptions.MinSize) are never packed, nor are numbers that are not given as text.
//
// [HookOptions].Recorder receives the same events as the Recorder of a bale.Cache: reads, writes,
// sizes, hits, errors and times.
//
// # Rolling out and rolling back
//
//  1. Give every process the hook with [HookOptions].ReadOnly: it unpacks, but does not pack. It
//     escapes a value that is itself a frame, such as an upload. A process without the hook sees
//     the header in front of an escaped value. NoEscape switches escaping off.
//  2. When all processes have it, remove ReadOnly process by process. Values are packed as they are
//     written.
//
// To roll back, set ReadOnly everywhere. Values become plain as they are rewritten or expire;
// escaped values stay escaped. Then remove the hook.
//
// # Limits
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
