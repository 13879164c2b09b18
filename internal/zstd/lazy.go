package zstd

// saving is a match, and how much less it costs than literals.
type saving struct {
	length int
	offset uint32
	price  int
}

// findLazy takes the match that saves most at a position, unless the next position's saves more.
func (d *Digest) findLazy(e *Encoder, src []byte, from, to int) int {
	anchor := from
	limit := to - 8
	for ip := from; ip < limit && len(e.sequences) < maxFound; {
		match := d.saveMost(e, src, ip, to, ip > anchor)
		if match.price <= 0 {
			ip += 1 + (ip-anchor)>>8
			continue
		}
		for ip+1 < limit {
			next := d.saveMost(e, src, ip+1, to, true)
			if next.price <= match.price {
				break
			}
			match = next
			ip++
		}
		e.literals = append(e.literals, src[anchor:ip]...)
		code := repeatCode(&e.offsets, match.offset, ip > anchor)
		e.sequences = append(e.sequences, found{uint16(ip - anchor), uint16(match.length), code})
		anchor = ip + match.length
		for ip += 2; ip < min(anchor, limit); ip++ {
			e.insert(ip, load64(src, ip))
		}
		ip = anchor
	}
	if len(e.sequences) == maxFound {
		to = anchor
	}
	e.literals = append(e.literals, src[anchor:to]...)
	return to
}

// saveMost finds the match at a position that saves most, by the mean price of literals. literals
// reports whether some precede it.
func (d *Digest) saveMost(e *Encoder, src []byte, ip, to int, literals bool) (most saving) {
	b := d.best
	v := load64(src, ip)
	consider := func(offset, code uint32, n int) {
		price := n*b.mean - int(b.runs[0]+b.offsets[code&31]+b.lengths[min(n, nice-1)])
		if price > most.price {
			most = saving{n, offset, price}
		}
	}
	candidates := e.offsets
	if !literals {
		candidates = [3]uint32{e.offsets[1], e.offsets[2], e.offsets[0] - 1}
	}
	for k, o := range candidates {
		if n := d.repeated(src, ip, to, int(o), uint32(v)); n >= minMatch {
			consider(o, uint32(k+1)>>1, n)
		}
	}
	short, last := e.insert(ip, v)
	known := e.inside(src, ip, to, short, last, minMatch, func(o uint32, n, _ int) {
		consider(o, offsetSize(o+3), n)
	})
	j, n := b.longest(src, ip, to)
	for n > known {
		at, length := b.shorter(j)
		if n > length {
			o := uint32(ip + len(d.content) - j)
			consider(o, offsetSize(o+3), n)
			n = length
		}
		j = at
	}
	return most
}
