//go:build !batch

package main

import "crypto/ed25519"

// firstWrong returns the first signature that does not hold, or -1.
func firstWrong(all []signature) int {
	for n, item := range all {
		if !ed25519.Verify(item.public, item.message, item.data) {
			return n
		}
	}
	return -1
}
