package embed_test

import (
	"testing"

	"github.com/tidemark-io/tidemark/internal/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m) }
