// Package acceptance holds the tests that run the program on real data: the
// Higgs dataset, whose exact answers are known; on load and sizes that are
// unusual; and with what goes wrong around it.
package acceptance
