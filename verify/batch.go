//go:build batch

package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha512"

	"filippo.io/edwards25519"
)

// most is how many signatures go into one equation: more would not fit into a core's cache.
const most = 128

// firstWrong returns the first signature that does not hold, or -1.
//
// It puts many signatures into one equation, and looks at each of them alone only where that does not hold. The two
// differ in one case: a signature that the owner of the key spoiled by a point of small order may hold in an equation
// and not alone. Nobody else can make such a signature.
func firstWrong(all []signature) int {
	for start := 0; start < len(all); start += most {
		end := start + most
		if end > len(all) {
			end = len(all)
		}
		if holdTogether(all[start:end]) {
			continue
		}
		for n := start; n < end; n++ {
			if !ed25519.Verify(all[n].public, all[n].message, all[n].data) {
				return n
			}
		}
	}
	return -1
}

// holdTogether checks the equation of RFC 8032, section 5.1.7, for many signatures at once: with random z of 128 bits
//
//	8 (sum(z S) B - sum(z R) - sum over keys (sum(z k) A)) = 0
//
// which holds for a wrong signature with a probability of 2^-128 (D. J. Bernstein et al., High-speed high-security
// signatures, 2012, section 5).
func holdTogether(all []signature) bool {
	random := make([]byte, 16*len(all))
	if _, err := rand.Read(random); err != nil {
		return false
	}
	base := edwards25519.NewScalar()
	keys := map[string]*edwards25519.Scalar{}
	var scalars []*edwards25519.Scalar
	var points []*edwards25519.Point
	for n, item := range all {
		r, err := new(edwards25519.Point).SetBytes(item.data[:32])
		if err != nil || mayBeSpelledTwice(item.data) && !bytes.Equal(r.Bytes(), item.data[:32]) {
			return false
		}
		s, err := new(edwards25519.Scalar).SetCanonicalBytes(item.data[32:])
		if err != nil {
			return false
		}
		key, known := keys[string(item.public)]
		if !known {
			a, err := new(edwards25519.Point).SetBytes(item.public)
			if err != nil {
				return false
			}
			key = edwards25519.NewScalar()
			keys[string(item.public)] = key
			scalars, points = append(scalars, key), append(points, a)
		}
		hash := sha512.New()
		hash.Write(item.data[:32])
		hash.Write(item.public)
		hash.Write(item.message)
		k, err := new(edwards25519.Scalar).SetUniformBytes(hash.Sum(nil))
		if err != nil {
			return false
		}
		small := append(random[16*n:16*n+16:16*n+16], make([]byte, 16)...)
		z, err := new(edwards25519.Scalar).SetCanonicalBytes(small)
		if err != nil {
			return false
		}
		base.MultiplyAdd(z, s, base)
		key.MultiplyAdd(z, k, key)
		scalars, points = append(scalars, z), append(points, r)
	}
	scalars, points = append(scalars, base.Negate(base)), append(points, edwards25519.NewGeneratorPoint())
	sum := new(edwards25519.Point).VarTimeMultiScalarMult(scalars, points)
	return sum.MultByCofactor(sum).Equal(edwards25519.NewIdentityPoint()) == 1
}

var zeros, ones = make([]byte, 30), bytes.Repeat([]byte{255}, 30)

// mayBeSpelledTwice says whether a point's bytes may not be its only ones: y of 2^255-19 or more, or x of 0 with a sign.
// Alone, R is compared as bytes, so a second spelling of the same point is a wrong signature.
func mayBeSpelledTwice(point []byte) bool {
	return bytes.Equal(point[1:31], zeros) || bytes.Equal(point[1:31], ones)
}
