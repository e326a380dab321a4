package door

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/walls"
	"github.com/tidemark-io/tidemark/query/web"
)

const (
	// tokensEvery is how often the file of tokens is looked at.
	tokensEvery = 2 * time.Second
	// tokensBytesMax bounds it: some 20,000 tokens.
	tokensBytesMax = 1 << 20
)

// tokens are those of a file, as it is now.
type tokens struct {
	path string
	log  *slog.Logger
	now  atomic.Pointer[walls.Tokens]

	mu   sync.Mutex
	text []byte // of the file when it was read last, good or not; nil: it cannot be read
}

// openTokens reads the file at path (api.tokens); nil where there is none.
func openTokens(path string, log *slog.Logger) (*tokens, error) {
	if path == "" || path == config.AuthOpen {
		return nil, nil
	}
	t := &tokens{path: path, log: log}
	_, err := t.read(true)
	return t, err
}

// CheckTokens says what is wrong with a file of tokens.
func CheckTokens(path string) error {
	_, err := openTokens(path, nil)
	return err
}

// role is web.Options.Role.
func (t *tokens) role(token string) web.Role {
	if role := t.now.Load().Role(token); role != nil {
		return role
	}
	return nil
}

// read takes the tokens of the file, if it has changed or again says so.
func (t *tokens) read(again bool) (taken bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.text
	text, err := readAll(t.path)
	if t.text = text; err != nil {
		return again || before != nil, fmt.Errorf("api.tokens: %w", err)
	}
	if !again && before != nil && bytes.Equal(before, text) {
		return false, nil
	}
	all, err := walls.ReadTokens(bytes.NewReader(text))
	if err != nil {
		return true, fmt.Errorf("api.tokens: %s: %w", t.path, err)
	}
	t.now.Store(&all)
	return true, nil
}

func readAll(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, tokensBytesMax+1))
	if err != nil {
		return nil, err
	}
	if len(text) > tokensBytesMax {
		return nil, fmt.Errorf("%s has more than %d bytes", path, tokensBytesMax)
	}
	return text, nil
}

// reload takes the tokens of the file, and says what came of it; of a file that has not
// changed only if again says so.
func (t *tokens) reload(again bool) {
	if t == nil {
		return
	}
	taken, err := t.read(again)
	switch {
	case !taken:
	case err != nil:
		t.log.Error("api.tokens: the file is not taken; the tokens before stay", "error", err)
	default:
		t.log.Info("api.tokens: read again", "file", t.path, "tokens", len(*t.now.Load()))
	}
}

func (t *tokens) watch(ctx context.Context) {
	if t == nil {
		return
	}
	ticker := time.NewTicker(tokensEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			t.reload(false)
		}
	}
}
