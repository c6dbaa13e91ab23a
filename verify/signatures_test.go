package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"testing"
)

// signatures returns n of them, of two keys in turns.
func signatures(n int) []signature {
	var all []signature
	var private [2]ed25519.PrivateKey
	for key := range private {
		_, private[key], _ = ed25519.GenerateKey(rand.Reader)
	}
	for seq := 0; seq < n; seq++ {
		key, message := private[seq%2], make([]byte, seq)
		public := key.Public().(ed25519.PublicKey)
		all = append(all, signature{int64(seq), "log", public, message, ed25519.Sign(key, message)})
	}
	return all
}

func TestTheFirstWrongSignatureIsFound(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 129, 300} {
		if wrong := firstWrong(signatures(n)); wrong != -1 {
			t.Errorf("of %d good ones, %d is called wrong", n, wrong)
		}
	}
	spoil := map[string]func(*signature){
		"R":           func(s *signature) { s.data[3] ^= 1 },
		"S":           func(s *signature) { s.data[40] ^= 1 },
		"large S":     func(s *signature) { s.data[63] |= 0x10 },
		"message":     func(s *signature) { s.message = append(s.message, 0) },
		"another key": func(s *signature) { s.public = signatures(1)[0].public },
		"no point":    func(s *signature) { copy(s.data, make([]byte, 32)); s.data[0] = 2 },
		"no key":      func(s *signature) { s.public = append([]byte{2}, make([]byte, 31)...) },
	}
	for what, change := range spoil {
		for _, place := range []int{0, 127, 128, 199} {
			all := signatures(200)
			change(&all[place])
			if place < 199 {
				change(&all[199])
			}
			if wrong := firstWrong(all); wrong != place {
				t.Errorf("%s: the wrong one is %d, found was %d", what, place, wrong)
			}
		}
	}
}

func TestTwoSignaturesThatAreWrongByTheSameAmountAreFound(t *testing.T) {
	// S + 1 and S - 1: a sum without random factors would hold.
	all := signatures(4)
	all[0].data[32]++
	all[2].data[32]--
	if wrong := firstWrong(all); wrong != 0 {
		t.Errorf("found was %d", wrong)
	}
}
