//go:build batch

package main

import (
	"crypto/ed25519"
	"crypto/sha512"
	"testing"

	"filippo.io/edwards25519"
)

// spoiled returns a signature that the owner of a key made with a point of order two added to R.
func spoiled(message []byte) signature {
	seed := sha512.Sum512([]byte("seed"))
	private, _ := new(edwards25519.Scalar).SetBytesWithClamping(seed[:32])
	public := new(edwards25519.Point).ScalarBaseMult(private).Bytes()
	nonce, _ := new(edwards25519.Scalar).SetUniformBytes(seed[:])
	two := make([]byte, 32) // (0, -1)
	for n := range two {
		two[n] = 255
	}
	two[0], two[31] = 0xec, 0x7f
	order, _ := new(edwards25519.Point).SetBytes(two)
	r := new(edwards25519.Point).ScalarBaseMult(nonce)
	r.Add(r, order)
	hash := sha512.New()
	hash.Write(r.Bytes())
	hash.Write(public)
	hash.Write(message)
	k, _ := new(edwards25519.Scalar).SetUniformBytes(hash.Sum(nil))
	s := edwards25519.NewScalar().MultiplyAdd(k, private, nonce)
	return signature{0, "log", public, message, append(r.Bytes(), s.Bytes()...)}
}

func TestOneCaseIsJudgedOtherwiseThanAloneAsTheCommentSays(t *testing.T) {
	forged := spoiled([]byte("message"))
	if ed25519.Verify(forged.public, forged.message, forged.data) || !holdTogether([]signature{forged}) {
		t.Error("the comment of firstWrong is not true any more")
	}
	if !holdTogether(signatures(3)) {
		t.Error("good signatures do not hold together")
	}
}

func TestASecondSpellingOfAPointIsAWrongSignature(t *testing.T) {
	// S = 0, k A + R = 0 for R = A = (0, 1): the equation holds for both spellings of the point, alone only for the first.
	neutral := append([]byte{1}, make([]byte, 31)...)
	other := append([]byte{1}, make([]byte, 31)...)
	other[31] = 0x80
	for _, r := range [][]byte{neutral, other} {
		forged := signature{0, "log", neutral, nil, append(append([]byte{}, r...), make([]byte, 32)...)}
		if ed25519.Verify(forged.public, forged.message, forged.data) != holdTogether([]signature{forged}) {
			t.Errorf("%x is judged otherwise than alone", r)
		}
	}
}
