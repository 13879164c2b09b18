package keygroup

// Match reports whether a key matches a pattern of SCAN.
func Match(pattern, key string) bool { return glob(pattern, key) }
