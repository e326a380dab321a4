//go:build !linux

package main

// reserveHugePages does nothing on this system.
func reserveHugePages(int) {}
