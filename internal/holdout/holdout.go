// Package holdout splits samples into those to train on and those to measure on.
package holdout

import "math/bits"

// Training reports whether the sample at index i is to train on; otherwise it is held out. It
// splits the samples in halves by the Thue-Morse sequence: i has an even number of one bits.
// Periodic samples cannot keep in step with this sequence. With every other sample and two
// alternating kinds, training would see one kind and the measurement the other.
func Training(i int) bool { return bits.OnesCount(uint(i))%2 == 0 }
