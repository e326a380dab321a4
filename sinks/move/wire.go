// Package move takes a shard's runs from a node that holds it, over NATS.
//
//	Fetch ── open ──────────► Server: cold.Export, pinned until close or idle
//	      ◄─ manifest ───────
//	      ── read run, at ──►           at a bounded rate, retried, checksums compared;
//	      ◄─ bytes ──────────           into cold.Import, which goes on where it was
//	      ── sum run ───────►
//	      ◄─ SHA-256 ────────
//	      ── close ─────────►   then again for what was checkpointed meanwhile
//
// serve.go answers; fetch.go asks; limit.go keeps the rate. docs/formats.md
// draws the messages.
package move

import (
	"fmt"
	"hash/crc32"
	"time"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/pipeline/generation"
)

// Subject is where a node answers for the runs that it has of a generation.
func Subject(node string, of generation.Number) string {
	return "tidemark.hold." + of.At(node) + ".runs"
}

// What a request asks for.
const (
	doDescribe = "describe" // dictionary and streams
	doOpen     = "open"     // an export of a shard, with an id that the asking node chooses
	doRead     = "read"     // bytes of a run
	doSum      = "sum"      // a run's checksum, as far as it is
	doClose    = "close"
)

// request is a message to a node, in JSON.
type request struct {
	Version int            `json:"version"` // of pipeline.FormatMoves; the reply is of the same
	Do      string         `json:"do"`
	Export  string         `json:"export,omitempty"` // id; asked twice, open is done once
	Shard   pipeline.Shard `json:"shard,omitempty"`
	Held    bool           `json:"held,omitempty"` // to open: also where nothing is stored yet of a shard that the node answers for
	Run     int            `json:"run,omitempty"`
	At      int64          `json:"at,omitempty"`
	Bytes   int            `json:"bytes,omitempty"` // to read, at most; the node may send fewer
}

// The reply to a read is the bytes, with their checksum in a header; to describe
// and open it is a [cold.Manifest], of describe without shard, state and runs; to
// close it is empty.
type summed struct {
	Done bool   `json:"done"`
	Sum  []byte `json:"sum,omitempty"` // once done
}

// Headers of a reply.
const (
	headerSum   = "Tidemark-Checksum"       // CRC-32C of the body, decimal
	headerError = "Nats-Service-Error"      // words; then there is no body
	headerCode  = "Nats-Service-Error-Code" // as in all replies
)

// codes of errors.
const (
	codeBad     = 400 // the request
	codeGone    = 404 // no such export: it was idle, or the node is another process by now
	codeNone    = 410 // of the shard nothing is stored: it was given up
	codeTooMany = 429 // exports are open; later there may be room
	codeFailed  = 500 // this shard or run
	codeClosed  = 503 // the node stops
)

// Refusal is what a node answered instead.
type Refusal struct {
	Code int
	Text string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s (%d)", r.Text, r.Code) }

const (
	// chunkMax bounds the bytes of a run in one message: small, so that other
	// messages on the connection do not wait long.
	chunkMax = 256 << 10
	// chunkRoom is what a message has besides.
	chunkRoom = 4 << 10
	// exportsMax bounds the exports that a node has open for others.
	exportsMax = 16
	// exportIdle is after which time an export that nobody reads is closed.
	exportIdle = 30 * time.Second
	// exportStalled is how long an export may make no progress while another one
	// finds no place: then it gives its place up. The process that reads it opens it
	// again and goes on where it was.
	exportStalled = 5 * time.Second
	// sumBytes is how much of a run is summed for one request.
	sumBytes = 16 << 20
	// idBytesMax bounds an export's id.
	idBytesMax = 64
	// textBytesMax bounds the text of a refusal.
	textBytesMax = 1024
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
