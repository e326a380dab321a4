// Package tidemark carries config.yaml, the configuration that holds where an
// operator's own file says nothing. The program is in cmd/tidemark; a guide to
// the rooms is in docs/architecture.md.
package tidemark

import _ "embed"

// DefaultConfig is config.yaml as it stood when the program was built, so that
// the program runs without a file. It is only read.
//
//go:embed config.yaml
var DefaultConfig []byte
