package natstest

import (
	"flag"
	"runtime"
	"strconv"
)

// SideBySide has so many parallel tests run at a time at least, also where there are fewer
// processors, unless -parallel says how many; for TestMain, before it runs them. Tests with
// servers of their own wait two thirds of the time and more, those with fleets nine tenths.
func SideBySide(least int) {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if said {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(max(least, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
}
