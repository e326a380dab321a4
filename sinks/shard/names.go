package shard

// channelNames numbers the names of channels in which users in memory have
// cursors, so that a cursor is two small numbers. The numbers are this
// process's: on disk, and wherever an answer could depend on it, stands the
// name. A name that no cursor holds is forgotten: anybody may read
// channels of any name.
type channelNames struct {
	numbers map[string]uint64
	held    []heldName // by number - 1
	unused  []uint64   // numbers without a name
	letters int        // bytes of the names
}

// bytes is the memory taken.
func (c *channelNames) bytes() int { return heldNameBytes*len(c.held) + c.letters }

type heldName struct {
	name    string
	cursors int
}

// heldNameBytes is what a name takes beside its bytes: its place in the list
// and in the map.
const heldNameBytes = 96

// find is the number of a name, if any cursor holds it.
func (c *channelNames) find(name string) (number uint64, ok bool) {
	number, ok = c.numbers[name]
	return number, ok
}

// hold is the number of a name, never 0, for one cursor more.
func (c *channelNames) hold(name string) (number uint64) {
	if number, ok := c.numbers[name]; ok {
		c.held[number-1].cursors++
		return number
	}
	if last := len(c.unused) - 1; last >= 0 {
		number, c.unused = c.unused[last], c.unused[:last]
	} else {
		c.held = append(c.held, heldName{})
		number = uint64(len(c.held))
	}
	if c.numbers == nil {
		c.numbers = make(map[string]uint64)
	}
	c.numbers[name] = number
	c.held[number-1] = heldName{name, 1}
	c.letters += len(name)
	return number
}

// release says that one cursor less holds a name.
func (c *channelNames) release(number uint64) {
	held := &c.held[number-1]
	if held.cursors--; held.cursors > 0 {
		return
	}
	delete(c.numbers, held.name)
	c.letters -= len(held.name)
	*held = heldName{}
	c.unused = append(c.unused, number)
	if len(c.numbers) == 0 { // a map keeps its room
		*c = channelNames{}
	}
}
