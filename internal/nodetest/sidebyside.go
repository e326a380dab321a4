package nodetest

import (
	"flag"
	"strconv"
)

// sideBySide is how many tests with fleets run at a time: for nine tenths of it each waits
// for members to beat, to be missed, and to be sure.
const sideBySide = 8

// SideBySide has that many parallel tests run, unless -parallel says how many; for
// TestMain, before it runs them.
func SideBySide() {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if said {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(sideBySide)); err != nil {
		panic(err)
	}
}
