package pipeline

import "encoding/binary"

// Op is what a change in a section's ordered part does, where it is more than
// arithmetic on a cell. Sets (the follow graph, outboxes, channels) and marks
// live in shards, and only a shard can tell whether a follow is a new one;
// so operations are not merged but applied in log order.
type Op uint8

// The operations. A position is that of the event.
const (
	OpCell       Op = iota // not an operation: Change's Column and Delta
	OpFollow               // ID follows Other, at Position
	OpUnfollow             // ID no longer follows Other
	OpFollowed             // ID is followed by Other, at Position
	OpUnfollowed           // ID is no longer followed by Other, at Position
	OpPost                 // author ID has published post Other, at Position
	OpUnpost               // author ID has taken post Other back
	OpRead                 // user ID has looked, at Position: Mark, Looked, Channels, Kinds, Items
	OpNotice               // channel Channels[0] has notice ID, at Position; for every node
	OpWithdraw             // channel Channels[0] no longer has notice ID
	OpAdd                  // Column's set of row ID gets Member, at Position; By is added to the cell if it was not there
	OpTake                 // Column's set of row ID loses Member, at Position; By is taken from the cell if it was there
	OpEmpty                // Column's set or list of row ID loses all that is in it; cells are not changed
	OpItem                 // Column's list of row ID gets an item with the identity Member, at Position, unless it has one with it; the cell counts it
	OpWithdrawn            // Column's list of row ID loses the item with the identity Member, at Position; so does the cell, if it is unread
	opsEnd
)

// OfSet says whether an operation is on the set, or the list, that a column has of a row.
func (o Op) OfSet() bool { return o >= OpAdd && o < opsEnd }

// OfItem says whether an operation is on an item of a list.
func (o Op) OfItem() bool { return o == OpItem || o == OpWithdrawn }

// Looked says what a read covers besides unread columns and channels.
type Looked uint8

// What a read may cover.
const (
	LookedFeed  Looked = 1 << iota
	LookedAll          // all channels
	LookedKinds        // all columns that keep items, and Kinds has them all
)

// Kind is a column of items that a read looks at.
type Kind struct {
	Column int // index in the window's Columns
	Seen   int // so many of the oldest unread ones were seen; SeenAll: all, up to Mark
}

// SeenAll is the Seen of a Kind.
const SeenAll = -1

// Operation is an operation with its details; which count depends on Op.
type Operation struct {
	Op       Op
	ID       uint64
	Other    uint64
	Position Position
	Mark     Position // of a read: its own position, or the one its user was shown
	Looked   Looked
	Channels []string
	Kinds    []Kind
	Items    []Position // of a read: it reads these items alone, of Kinds; they are not after Position

	Column int    // of a set or a list: index in the window's Columns
	Member Member // of a list: the item's identity, the zero Member where it has none
	By     int64  // within ±Limit
	Actor  uint64 // of an item; 0: the identity has it, or there is none
	Post   uint64 // as well
}

// SectionChangesMax bounds the rows and entries that one section of a window
// changes: a bound on what one window adds to a shard that is full of changes,
// whatever its memory. Lanes close a window before one of its sections could exceed it.
const SectionChangesMax = 8192

// ByteChangesMax is the most rows and entries that a byte of a section changes.
const ByteChangesMax = 4

// PostDropsMax is how many older posts one post takes out of an outbox at most.
const PostDropsMax = 8

// NoticeDropsMax is how many older notices one notice takes out of its channel
// at most.
const NoticeDropsMax = 2

// Changes is the most rows and entries that the operation changes in the
// section that it is in: those of the columns that the follow graph maintains
// included.
func (o *Operation) Changes() int {
	switch o.Op {
	case OpPost:
		return 1 + PostDropsMax
	case OpRead: // marks, a cursor for each channel, for all kinds, and two for each; a number for each; and items with theirs
		return 2 + len(o.Channels) + 4*len(o.Kinds) + 2*len(o.Items)
	case OpUnfollowed, OpWithdrawn: // as below, and the user's marks and a cursor
		return 6
	case OpNotice:
		return 1 + NoticeDropsMax
	case OpUnpost, OpWithdraw, OpEmpty:
		return 1
	}
	return 4 // the edge, the user's row, their unread row, its item; the member or item, the cell, the row's existence
}

// What is in an operation on a set, behind its column.
const (
	hasB      = 1 << iota // Member.B, which is not 0
	hasBy                 // By, which is not 1
	hasBeside = hasBy     // of an item: Actor and Post, one of which is not 0
)

// AppendOperation appends an operation to the ordered part of a section, all
// integers unsigned LEB128:
//
//	op<<2 | 3 │ ID │ follow, followed, post, notice: Position - From
//	               │ graph, post:                    Other
//	               │ set, list:                      column<<2 | has
//	               │ add, take:                      A │ [B] │ [By, zigzag] │ Position - From
//	               │ item, withdrawn:                A │ [B] │ [Actor │ Post] │ Position - From
//	               │ read:                           Position - From │ Position - Mark │ Looked │ n
//	               │ read, notice:                   n × (length, name)
//	               │ read:                           n │ n × (column, Seen + 1) │ n │ n × (Position - item)
func AppendOperation(dst []byte, from Position, o *Operation) []byte {
	dst = binary.AppendUvarint(dst, uint64(o.Op)<<2|formOp)
	dst = binary.AppendUvarint(dst, o.ID)
	switch o.Op {
	case OpFollow, OpPost:
		dst = binary.AppendUvarint(dst, uint64(o.Position-from))
		dst = binary.AppendUvarint(dst, o.Other)
	case OpFollowed, OpUnfollowed:
		dst = binary.AppendUvarint(dst, uint64(o.Position-from))
		dst = binary.AppendUvarint(dst, o.Other)
	case OpUnfollow, OpUnpost:
		dst = binary.AppendUvarint(dst, o.Other)
	case OpRead:
		dst = binary.AppendUvarint(dst, uint64(o.Position-from))
		dst = binary.AppendUvarint(dst, uint64(o.Position-o.Mark))
		dst = binary.AppendUvarint(dst, uint64(o.Looked))
		dst = binary.AppendUvarint(dst, uint64(len(o.Channels)))
		for _, name := range o.Channels {
			dst = appendName(dst, name)
		}
		dst = binary.AppendUvarint(dst, uint64(len(o.Kinds)))
		for _, k := range o.Kinds {
			dst = binary.AppendUvarint(dst, uint64(k.Column))
			dst = binary.AppendUvarint(dst, uint64(k.Seen+1))
		}
		dst = binary.AppendUvarint(dst, uint64(len(o.Items)))
		for _, item := range o.Items {
			dst = binary.AppendUvarint(dst, uint64(o.Position-item))
		}
	case OpNotice:
		dst = binary.AppendUvarint(dst, uint64(o.Position-from))
		dst = appendName(dst, o.Channels[0])
	case OpWithdraw:
		dst = appendName(dst, o.Channels[0])
	case OpAdd, OpTake:
		dst = appendMember(dst, o)
		dst = binary.AppendUvarint(dst, uint64(o.Position-from))
	case OpItem, OpWithdrawn:
		dst = appendItem(dst, o)
		dst = binary.AppendUvarint(dst, uint64(o.Position-from))
	case OpEmpty:
		dst = binary.AppendUvarint(dst, uint64(o.Column)<<2)
	}
	return dst
}

func appendMember(dst []byte, o *Operation) []byte {
	has := uint64(0)
	if o.Member.B != 0 {
		has |= hasB
	}
	if o.By != 1 {
		has |= hasBy
	}
	dst = binary.AppendUvarint(dst, uint64(o.Column)<<2|has)
	dst = binary.AppendUvarint(dst, o.Member.A)
	if has&hasB != 0 {
		dst = binary.AppendUvarint(dst, o.Member.B)
	}
	if has&hasBy != 0 {
		dst = binary.AppendVarint(dst, o.By)
	}
	return dst
}

func appendItem(dst []byte, o *Operation) []byte {
	has := uint64(0)
	if o.Member.B != 0 {
		has |= hasB
	}
	if o.Actor|o.Post != 0 {
		has |= hasBeside
	}
	dst = binary.AppendUvarint(dst, uint64(o.Column)<<2|has)
	dst = binary.AppendUvarint(dst, o.Member.A)
	if has&hasB != 0 {
		dst = binary.AppendUvarint(dst, o.Member.B)
	}
	if has&hasBeside != 0 {
		dst = binary.AppendUvarint(dst, o.Actor)
		dst = binary.AppendUvarint(dst, o.Post)
	}
	return dst
}

func appendName(dst []byte, name string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(name)))
	return append(dst, name...)
}

// operation reads what AppendOperation wrote, behind the tag.
func (s *SectionReader) operation(op Op) {
	o := &s.Operation
	*o = Operation{Op: op, ID: s.r.uvarint(), Channels: o.Channels[:0], Kinds: o.Kinds[:0], Items: o.Items[:0]}
	switch op {
	case OpFollow, OpPost:
		o.Position = s.position()
		o.Other = s.r.uvarint()
	case OpFollowed, OpUnfollowed:
		o.Position = s.repeated()
		o.Other = s.r.uvarint()
	case OpUnfollow, OpUnpost:
		o.Other = s.r.uvarint()
	case OpRead:
		o.Position = s.position()
		o.Mark = o.Position - min(o.Position, Position(s.r.uvarint()))
		o.Looked = Looked(s.r.uvarint())
		for range s.r.count(1) {
			s.name()
		}
		for range s.r.count(2) {
			o.Kinds = append(o.Kinds, Kind{int(min(s.r.uvarint(), columnMax)), int(min(s.r.uvarint(), Limit)) - 1})
		}
		for range s.r.count(1) {
			o.Items = append(o.Items, o.Position-min(o.Position, Position(s.r.uvarint())))
		}
	case OpNotice:
		o.Position = s.position()
		s.name()
	case OpWithdraw:
		s.name()
	case OpAdd, OpTake:
		s.member(s.r.uvarint())
		o.Position = s.repeated()
	case OpItem, OpWithdrawn:
		s.item(s.r.uvarint())
		o.Position = s.repeated()
	case OpEmpty:
		column := s.r.uvarint()
		if o.Column = int(column >> 2); column&3 != 0 {
			s.r.fail("an operation that empties a set has a member")
		}
	default:
		s.r.fail("operation %d is not known", op)
	}
}

// member reads what appendMember wrote.
func (s *SectionReader) member(column uint64) {
	o := &s.Operation
	o.Column, o.By = int(column>>2), 1
	o.Member.A = s.r.uvarint()
	if column&hasB != 0 {
		o.Member.B = s.r.uvarint()
	}
	if column&hasBy != 0 {
		o.By = s.varint()
	}
	if o.By < -Limit {
		s.r.fail("%d is no amount", o.By)
	}
}

// columnMax is more than the number of any column.
const columnMax = 1 << 20

// item reads what appendItem wrote.
func (s *SectionReader) item(column uint64) {
	o := &s.Operation
	o.Column = int(min(column>>2, columnMax))
	o.Member.A = s.r.uvarint()
	if column&hasB != 0 {
		o.Member.B = s.r.uvarint()
	}
	if column&hasBeside != 0 {
		o.Actor = s.r.uvarint()
		o.Post = s.r.uvarint()
	}
}

// repeated reads a position that may be that of the operation before: an event adds to
// as many sets as it has rules, and both ends of a follow may be in one section.
func (s *SectionReader) repeated() Position {
	p := s.from + Position(s.r.uvarint())
	if p < s.last || p == s.from {
		s.r.fail("position %d comes before %d", p, s.last)
	}
	s.last = p
	return p
}

// position reads that of an operation: after the one before, for an event has
// one operation of the other kinds at most, and that one comes first.
func (s *SectionReader) position() Position {
	p := s.from + Position(s.r.uvarint())
	if p <= s.last {
		s.r.fail("position %d does not come after %d", p, s.last)
	}
	s.last = p
	return p
}

// ChannelBytesMax is the longest name of a channel that rules let pass.
const ChannelBytesMax = 64

func (s *SectionReader) name() {
	name := s.r.bytes(s.r.uvarint())
	if len(name) > ChannelBytesMax {
		s.r.fail("a channel's name has %d bytes", len(name))
	}
	s.Operation.Channels = append(s.Operation.Channels, string(name))
}
