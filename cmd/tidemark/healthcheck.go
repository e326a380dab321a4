package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

type healthcheckCommand struct {
	URL     string        `name:"url" placeholder:"URL" help:"Ask this page instead of the one that the configuration names."`
	Ready   bool          `help:"Ask /readyz: it also fails while the node catches up. Without it, /healthz: the process lives."`
	Timeout time.Duration `default:"3s" help:"The longest to wait for an answer (${default})."`
	settings
}

func (healthcheckCommand) Help() string {
	return `Asks a node here for its health over HTTP (http.listen of the configuration): exit code 0 when it is good, 1 when it is not or does not answer, with the reason, 2 when the command or the configuration is wrong. For images, which have no shell and no curl.

EXAMPLE

    tidemark healthcheck --config /etc/tidemark.yaml
    tidemark healthcheck --ready
    tidemark healthcheck --url http://127.0.0.1:8480/readyz`
}

// Validate is called by kong.
func (h *healthcheckCommand) Validate() error {
	switch {
	case h.Timeout <= 0:
		return fmt.Errorf("--timeout %s is not a time to wait", h.Timeout)
	case h.URL != "" && h.Config != "":
		return errors.New("--url and --config are both given; give one of them")
	case h.URL != "" && h.Ready:
		return errors.New("--url names the page, and so does --ready; give one of them")
	}
	return h.checkURL()
}

func (h *healthcheckCommand) checkURL() error {
	if h.URL == "" {
		return nil
	}
	page, err := url.Parse(h.URL)
	if err != nil || page.Host == "" || page.Scheme != "http" && page.Scheme != "https" {
		return fmt.Errorf("--url %q is not a page: say http://HOST:PORT/healthz", h.URL)
	}
	return nil
}

// nodeHere asks a node on this machine for a page, through no proxy.
var nodeHere = http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// reasonBytesMax bounds what is read of a page.
const reasonBytesMax = 64 << 10

func (h *healthcheckCommand) Run(t *terminal) error {
	page, err := h.page()
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return usage("--url %s: %w", page, err)
	}
	reply, err := nodeHere.Do(request)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", h.Timeout)
		}
		return fmt.Errorf("%s: %w", page, err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(io.LimitReader(reply.Body, reasonBytesMax))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	text := strings.TrimSpace(string(body))
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", page, reply.Status, harmless(text))
	}
	_, err = fmt.Fprintln(t.out, harmless(text))
	return err
}

func (h *healthcheckCommand) page() (string, error) {
	if h.URL != "" {
		return h.URL, nil
	}
	c, _, err := h.load()
	if err != nil {
		return "", err
	}
	if c.HTTP.Listen == "" {
		return "", errors.New("http.listen is empty in this configuration: the node has no page to ask")
	}
	address, err := here(c.HTTP.Listen)
	if err != nil {
		return "", fmt.Errorf("http.listen: %w", err)
	}
	if h.Ready {
		return "http://" + address + "/readyz", nil
	}
	return "http://" + address + "/healthz", nil
}

// here is an address at which somebody on this machine reaches a listener.
func here(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port), nil
}
