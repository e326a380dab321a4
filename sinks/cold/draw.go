package cold

// Draw gives n ids that the view's runs have entries of, each the first of a block that
// is drawn from all blocks evenly; pick(k) is a random number below k. It reads nothing.
// It gives none where there are no more than n blocks: all ids are read as soon.
func (v *View) Draw(n int, pick func(k int) int) (ids []uint64) {
	blocks := 0
	for _, l := range v.layers.all {
		blocks += l.info.Blocks
	}
	if blocks <= n {
		return nil
	}
	for range n {
		block := pick(blocks)
		for _, l := range v.layers.all {
			if block < l.info.Blocks {
				ids = append(ids, l.run.Head(block).A)
				break
			}
			block -= l.info.Blocks
		}
	}
	return ids
}

// Bytes is what the runs take that the shard's key lists.
func (k *Stack) Bytes() (bytes int64) {
	for _, l := range k.list() {
		bytes += l.info.Bytes
	}
	return bytes
}
