package run

import "github.com/tidemark-io/tidemark/pipeline"

// AppendWhole appends the value of a whole row: the cells that are not 0.
// numbers are the columns' dictionary numbers, by cell, in any order.
func AppendWhole(dst []byte, numbers []int, cells []int64) []byte { panic("soon") }

// AppendChange appends the value of a change of a row: the deltas that are not
// pipeline.Identity. numbers are as those of AppendWhole.
func AppendChange(dst []byte, numbers []int, deltas []pipeline.Delta) []byte { panic("soon") }

// IsWhole says whether the value of a row is that of a whole one.
func IsWhole(row []byte) bool { panic("soon") }

// ApplyRow brings cells as of older runs to where row leaves them; a whole row
// clears them first. places has the cell of each dictionary number, -1 for a
// column to pass over.
func ApplyRow(row []byte, places []int, cells []int64) error { panic("soon") }

// MergeRows appends what newer over older makes, two values of one row.
func MergeRows(dst, newer, older []byte) ([]byte, error) { panic("soon") }

// Settle appends what is left of a row where nothing is older: the cells that
// are not 0. zero says that there are none: then nothing is appended.
func Settle(dst, row []byte) (settled []byte, zero bool, err error) { panic("soon") }

// AppendNumbers appends the value of an entry of another kind than Row.
func AppendNumbers(dst []byte, numbers ...uint64) []byte { panic("soon") }

// ReadNumbers reads the value of an entry of another kind than Row: the
// position of Following, Cursor, Notice and Second, the post of a Post, the
// four marks; of Follower nothing.
func ReadNumbers(kind Kind, value []byte) (numbers [4]uint64, err error) { panic("soon") }
