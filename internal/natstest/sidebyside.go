package natstest

import (
	"flag"
	"runtime"
	"strconv"
)

// sideBySideMin is how many tests run at a time at least where they say so: those
// with servers of their own wait two thirds of the time and more.
const sideBySideMin = 4

// SideBySide has more parallel tests run at a time than there are processors, unless
// -parallel says how many; for TestMain, before it runs them.
func SideBySide() {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if said {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(max(sideBySideMin, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
}
