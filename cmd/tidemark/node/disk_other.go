//go:build !unix

package node

func checkFree(string) error { return nil }
