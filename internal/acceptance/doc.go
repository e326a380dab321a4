// Package acceptance holds the tests that run the program on real data: the
// Higgs dataset, whose exact answers are known.
package acceptance
