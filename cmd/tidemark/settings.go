package main

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"github.com/tidemark-io/tidemark/internal/config"
)

// defaultFile is read when no other is named, if it is there.
const defaultFile = "config.yaml"

// settings is the flag of commands that read the configuration.
type settings struct {
	Config string `placeholder:"FILE" help:"The configuration (config.yaml here, if there is one, else the built-in defaults)."`
}

// load gives the configuration and the name of the file that it came from, ""
// for the built-in one.
func (s *settings) load() (*config.Config, string, error) {
	c, path, _, err := s.loadNamed()
	return c, path, err
}

// loadNamed also names the variables of the environment that values came from.
func (s *settings) loadNamed() (c *config.Config, path string, used []string, err error) {
	path = s.Config
	if path == "" {
		if _, err := os.Stat(defaultFile); !errors.Is(err, fs.ErrNotExist) {
			path = defaultFile
		}
	}
	c, used, err = config.Load(path, os.Environ())
	if _, unreadable := errors.AsType[*fs.PathError](err); unreadable {
		err = usageError{err}
	}
	return c, path, used, err
}

// logger writes as the configuration says.
func logger(to io.Writer, c config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo // config allows no other
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(to, options))
	}
	return slog.New(slog.NewTextHandler(to, options))
}
