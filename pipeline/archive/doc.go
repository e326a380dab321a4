// Package archive keeps messages of EVENTS in files, and reads them like the stream.
//
//	EVENTS ─► Write ─► segments: bodies (NDJSON, zstd) and index (zstd), each with its SHA-256
//	                      └─► Source ─► what reads EVENTS: rebuild, verify, explain, restore
//
// A [Segment] covers sequences First to Last. segment.go encodes and decodes one, in
// memory; write.go cuts a source into segments; source.go reads segments one after the
// other, kept.go keeps one for a while; directory.go is a directory of them, which
// `tidemark events archive` fills, files.go what that stands on; joined.go reads the
// directory and then EVENTS, history.go too where the stream is trimmed while it reads;
// sealed.go is the JSON that says what there is. docs/formats.md draws the files.
package archive
