// Package packed is the binary form of tidemark.get and tidemark.unread, which
// the service and the Go client both write and read, and the bytes that it has in
// common with what nodes ask each other (query/wire).
//
//	client ─► "TMQ" version │ what any request may carry │ names │ ids ─► service
//	client ◄─ "TMR" version │ as_of │ missing │ names │ columns of cells ◄─┘
//
// A column of 500 values is read in one loop without a branch: all cells of a
// column are as wide as its largest needs (list.go). Ids of an answer are not in
// it: the asker knows them. Errors are no answers: they stay in NATS headers.
//
// form.go has the head of both, get.go and unread.go what is asked and answered,
// list.go ids and cells, cursor.go the reading. docs/formats.md draws all of it.
//
// What comes from the wire may come from anybody: reading returns an error and
// never panics, and what it allocates is bounded by the bytes that it is given,
// by the number of ids asked, and by CellsMax.
package packed
