//go:build !batch

package main

import "crypto/ed25519"

// firstWrong returns the first signature that does not hold, or -1.
func firstWrong(all []signature) int {
	for n, one := range all {
		if !ed25519.Verify(one.public, one.message, one.data) {
			return n
		}
	}
	return -1
}
