package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// table lines cells up: texts to the left, numbers to the right.
type table struct {
	rows [][]string
	left []bool // by column
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(to io.Writer) error {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < len(t.left) && t.left[i] {
				line.WriteString(cell + pad)
			} else {
				line.WriteString(pad + cell)
			}
		}
		fmt.Fprintln(&b, strings.TrimRight(line.String(), " "))
	}
	_, err := io.WriteString(to, b.String())
	return err
}
