package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// chunk is how many bundles of 256 entries are held in memory at once.
const chunk = 64

// An envelope has one spelling: these texts around the payload and the signatures.
const (
	payloadType = "application/vnd.in-toto+json"
	opening     = `{"payload":"`
	between     = `","payloadType":"` + payloadType + `","signatures":`
)

type sealing struct {
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"`
}

type statement struct {
	Type      string `json:"_type"`
	Predicate struct {
		Kind     string  `json:"kind"`
		Policy   *policy `json:"policy"`
		PrevRoot string  `json:"prev_root"`
		Seq      int64   `json:"seq"`
	} `json:"predicate"`
}

// entry is an envelope taken apart, before its signatures were checked.
type entry struct {
	seq     int64
	payload []byte
	sealed  []sealing
	said    statement
}

// signature is one to be checked: whose, over what, of which entry.
type signature struct {
	seq     int64
	role    string
	public  ed25519.PublicKey
	message []byte
	data    []byte
}

// checkEntries checks every entry's own signature, its role, its number and the tree it says was before it.
//
// Bundles are read and checked on all cores. Only the policy in force goes from one to the next: an entry that changes
// keys is checked by the policy before it.
func checkEntries(dir string, size int64, stored tlog.HashReader) (string, error) {
	var current *policy
	signed := map[string]int{}
	for first := int64(0); first*256 < size; first += chunk {
		count := (size - first*256 + 255) / 256
		if count > chunk {
			count = chunk
		}
		opened := make([][]entry, count)
		err := inParallel(int(count), func(n int) (err error) {
			opened[n], err = openBundle(dir, first+int64(n), size, stored)
			return err
		})
		if err != nil {
			return "", err
		}
		before := make([]*policy, count)
		for n, entries := range opened {
			before[n] = current
			for _, one := range entries {
				if current, err = follow(current, one); err != nil {
					return "", fmt.Errorf("entry %d: %w", one.seq, err)
				}
			}
		}
		found := make([]map[string]int, count)
		err = inParallel(int(count), func(n int) (err error) {
			found[n], err = checkBundle(opened[n], before[n])
			return err
		})
		if err != nil {
			return "", err
		}
		for _, one := range found {
			for role, times := range one {
				signed[role] += times
			}
		}
	}
	var roles []string
	for role := range signed {
		roles = append(roles, fmt.Sprintf("%d signed by %s", signed[role], role))
	}
	sort.Strings(roles)
	return strings.Join(roles, ", "), comparePolicy(dir, current)
}

// openBundle takes the entries of a bundle apart and checks their numbers and the tree before each.
func openBundle(dir string, number, size int64, stored tlog.HashReader) ([]entry, error) {
	data, err := bundle(dir, number, size)
	if err != nil {
		return nil, err
	}
	entries := make([]entry, len(data))
	for n, one := range data {
		seq := number*256 + int64(n)
		if entries[n], err = openEntry(one, seq, stored); err != nil {
			return nil, fmt.Errorf("entry %d: %w", seq, err)
		}
	}
	return entries, nil
}

func openEntry(data []byte, seq int64, stored tlog.HashReader) (entry, error) {
	opened := entry{seq: seq}
	payload, signatures, found := bytes.Cut(bytes.TrimPrefix(data, []byte(opening)), []byte(between))
	if !found || !bytes.HasPrefix(data, []byte(opening)) || !bytes.HasSuffix(signatures, []byte("}")) {
		return opened, errors.New("is no DSSE envelope")
	}
	if err := json.Unmarshal(signatures[:len(signatures)-1], &opened.sealed); err != nil {
		return opened, err
	}
	opened.payload = make([]byte, base64.StdEncoding.DecodedLen(len(payload)))
	size, err := base64.StdEncoding.Strict().Decode(opened.payload, payload)
	if err != nil {
		return opened, err
	}
	opened.payload = opened.payload[:size]
	said := &opened.said
	if err := json.Unmarshal(opened.payload, said); err != nil {
		return opened, err
	}
	if said.Type != "https://in-toto.io/Statement/v1" {
		return opened, errors.New("is no in-toto statement")
	}
	if said.Predicate.Seq != seq {
		return opened, fmt.Errorf("says it is entry %d", said.Predicate.Seq)
	}
	before, err := rootOf(seq, stored)
	if err != nil {
		return opened, err
	}
	if said.Predicate.PrevRoot != "sha256:"+hex.EncodeToString(before) {
		return opened, errors.New("names another tree before it")
	}
	return opened, nil
}

func rootOf(size int64, stored tlog.HashReader) ([]byte, error) {
	if size == 0 {
		empty := sha256.Sum256(nil)
		return empty[:], nil
	}
	root, err := tlog.TreeHash(size, stored)
	return root[:], err
}

// checkBundle checks who signed the entries of a bundle. It counts the signatures of each role.
func checkBundle(entries []entry, current *policy) (map[string]int, error) {
	var all []signature
	signed := map[string]int{}
	for _, one := range entries {
		if one.seq == 0 {
			current = one.said.Predicate.Policy
		}
		signatures, err := signaturesOf(one, current)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", one.seq, err)
		}
		all = append(all, signatures...)
		if current, err = follow(current, one); err != nil {
			return nil, fmt.Errorf("entry %d: %w", one.seq, err)
		}
	}
	if wrong := firstWrong(all); wrong >= 0 {
		return nil, fmt.Errorf("entry %d: the signature of %s does not hold", all[wrong].seq, all[wrong].role)
	}
	for _, one := range all {
		signed[one.role]++
	}
	return signed, nil
}

// signaturesOf returns the signatures of an entry, after it checked that their keys may sign it.
func signaturesOf(one entry, current *policy) ([]signature, error) {
	if len(one.sealed) == 0 {
		return nil, errors.New("is not signed")
	}
	kind := one.said.Predicate.Kind
	if _, own := current.Roles[kind+":person"]; own && reviewedByPerson(one.payload) {
		kind += ":person"
	}
	allowed, found := current.Roles[kind]
	if !found {
		allowed = current.Roles["*"]
	}
	message := append([]byte(fmt.Sprintf("DSSEv1 %d %s %d ", len(payloadType), payloadType, len(one.payload))), one.payload...)
	var signatures []signature
	for _, each := range one.sealed {
		key, err := current.key(each.KeyID, one.seq)
		if err != nil {
			return nil, err
		}
		if !contains(allowed, key.Role) {
			return nil, fmt.Errorf("a %q entry is signed by %s, may be by %s", kind, key.Role, strings.Join(allowed, " or "))
		}
		public, err := hex.DecodeString(key.Public)
		if err != nil || len(public) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("key %.16s is no ed25519 key", key.ID)
		}
		data, err := base64.StdEncoding.DecodeString(each.Sig)
		if err != nil || len(data) != ed25519.SignatureSize {
			return nil, fmt.Errorf("the signature of %s is none", key.Role)
		}
		signatures = append(signatures, signature{one.seq, key.Role, public, message, data})
	}
	return signatures, nil
}

// reviewedByPerson says whether an entry names a person as its reviewer: policies have roles of their own for those.
func reviewedByPerson(payload []byte) bool {
	var said struct {
		Predicate struct {
			Body map[string]json.RawMessage `json:"body"`
		} `json:"predicate"`
	}
	return json.Unmarshal(payload, &said) == nil && string(said.Predicate.Body["reviewer"]) == `"person"`
}
