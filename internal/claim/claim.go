// Package claim bounds the memory that is allocated on the mere word of a frame. A header claims
// how many bytes its payload holds, and anyone can forge one.
package claim

const (
	// free is the size in bytes up to which a claim is believed: a block of zstd, and more than
	// most values.
	free = 128 << 10

	// ratio is the compression up to which a larger claim is believed. JSON and logs stay below it;
	// with a dictionary some reach 24. Disbelief costs time, and no value.
	ratio = 16

	// growth is the factor from one attempt to the next. All attempts together cost a third more
	// than the last one.
	growth = 4
)

// First returns the room for a first attempt to decode a payload of n bytes that claims size bytes:
// all of size where that is plausible. The room is below growth times what is believed, so that the
// attempts end at size exactly.
func First(size, n int) int {
	believed := max(free, ratio*n)
	room := size
	for room/growth >= believed {
		room = (room + growth - 1) / growth
	}
	return room
}

// Next returns the room for the attempt after one that filled its room.
func Next(size, room int) int { return min(size, growth*room) }
