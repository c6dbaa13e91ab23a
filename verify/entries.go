package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
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
	keyID string
	data  []byte
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

// trail is what the entries say all together.
type trail struct {
	policy   *policy
	session  string
	first    string // kind of the first entry
	closed   bool
	clock    uint64
	keys     map[string]bool
	verdicts []statement
	evidence map[string]int64 // digest of a file in the store, and an entry that names it
	lists    []string         // digests of files in the store that name further files
	signed   map[string]int
}

// readEntries checks every entry: its form, its number, the tree before it, its place after the entries before it, and
// who signed it; withSignatures also whether the signatures hold.
//
// Bundles are read and checked on all cores. Only what goes from one entry to the next is done in order.
func readEntries(dir string, size int64, stored tlog.HashReader, withSignatures bool) (*trail, error) {
	whole := &trail{keys: map[string]bool{}, evidence: map[string]int64{}, signed: map[string]int{}}
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
			return nil, err
		}
		signatures := make([][]signature, count)
		for n, entries := range opened {
			for _, one := range entries {
				found, err := whole.add(one)
				if err != nil {
					return nil, fmt.Errorf("entry %d: %w", one.seq, err)
				}
				signatures[n] = append(signatures[n], found...)
			}
		}
		if !withSignatures {
			continue
		}
		err = inParallel(int(count), func(n int) error {
			if wrong := firstWrong(signatures[n]); wrong >= 0 {
				one := signatures[n][wrong]
				return fmt.Errorf("entry %d: the signature of %s does not hold", one.seq, one.role)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if whole.first != "open" && whole.first != "workspace" {
		return nil, errors.New("the trail does not begin with an \"open\" entry")
	}
	return whole, nil
}

// add checks an entry against those before it and returns its signatures.
func (t *trail) add(one entry) ([]signature, error) {
	said := one.said
	if one.seq == 0 {
		t.session, t.first = said.session, said.kind
	}
	if said.session != t.session {
		return nil, fmt.Errorf("belongs to session %q, not %q", said.session, t.session)
	}
	if said.time < t.clock {
		return nil, errors.New("is dated before the entry before it")
	}
	t.clock = said.time
	if t.keys[said.key] {
		return nil, fmt.Errorf("the key %q appears twice", said.key)
	}
	t.keys[said.key] = true
	if t.closed && !kinds.mayFollowTheEnd(said.kind) {
		return nil, fmt.Errorf("a %q entry follows the end of the session", said.kind)
	}
	t.closed = t.closed || said.kind == "close"
	before := t.policy
	if one.seq == 0 {
		before = said.policy
	}
	after, err := follow(t.policy, said)
	if err != nil {
		return nil, err
	}
	signatures, err := signaturesOf(one, before)
	if err != nil {
		return nil, err
	}
	t.policy = after
	for _, each := range signatures {
		t.signed[each.role]++
	}
	if said.kind == "verdict" {
		t.verdicts = append(t.verdicts, said)
	}
	files, lists := said.evidence()
	for _, digest := range files {
		if _, known := t.evidence[digest]; !known {
			t.evidence[digest] = one.seq
		}
	}
	t.lists = append(t.lists, lists...)
	return signatures, nil
}

// signers tells who signed how many entries.
func (t *trail) signers() string {
	var roles []string
	for role := range t.signed {
		roles = append(roles, fmt.Sprintf("%d signed by %s", t.signed[role], role))
	}
	sort.Strings(roles)
	return strings.Join(roles, ", ")
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
	var err error
	if opened.sealed, err = readSignatures(signatures[:len(signatures)-1]); err != nil {
		return opened, fmt.Errorf("is no DSSE envelope: %w", err)
	}
	var ok bool
	if opened.payload, ok = decoded(string(payload)); !ok {
		return opened, errors.New("is no DSSE envelope: its payload is not base64")
	}
	if opened.said, err = readStatement(opened.payload); err != nil {
		return opened, err
	}
	if opened.said.seq != seq {
		return opened, fmt.Errorf("says it is entry %d", opened.said.seq)
	}
	before, err := rootOf(seq, stored)
	if err != nil {
		return opened, err
	}
	if opened.said.prevRoot != "sha256:"+hex.EncodeToString(before) {
		return opened, errors.New("names another tree before it")
	}
	return opened, nil
}

func readSignatures(data []byte) ([]sealing, error) {
	value, err := parseCanonical(data)
	if err != nil {
		return nil, err
	}
	list, ok := value.([]interface{})
	if !ok || len(list) == 0 {
		return nil, errors.New("is not signed")
	}
	var found []sealing
	for _, one := range list {
		each, err := members(one, "keyid", "sig")
		if err != nil {
			return nil, err
		}
		id, isText := each["keyid"].(string)
		encoded, _ := each["sig"].(string)
		signature, isBase64 := decoded(encoded)
		if !isText || !isBase64 || len(signature) != ed25519.SignatureSize {
			return nil, errors.New("a signature has another form")
		}
		found = append(found, sealing{id, signature})
	}
	return found, nil
}

func rootOf(size int64, stored tlog.HashReader) ([]byte, error) {
	if size == 0 {
		empty := sha256.Sum256(nil)
		return empty[:], nil
	}
	root, err := tlog.TreeHash(size, stored)
	return root[:], err
}

// signaturesOf returns the signatures of an entry, after it checked that their keys may sign it.
func signaturesOf(one entry, current *policy) ([]signature, error) {
	kind, allowed := current.allowed(one.said)
	message := append([]byte(fmt.Sprintf("DSSEv1 %d %s %d ", len(payloadType), payloadType, len(one.payload))), one.payload...)
	var signatures []signature
	for _, each := range one.sealed {
		key, err := current.key(each.keyID, one.seq)
		if err != nil {
			return nil, err
		}
		if !contains(allowed, key.role) {
			return nil, fmt.Errorf("a %q entry is signed by %s, may be by %s", kind, key.role, strings.Join(allowed, " or "))
		}
		signatures = append(signatures, signature{one.seq, key.role, key.bytes(), message, each.data})
	}
	return signatures, nil
}

func contains(all []string, one string) bool {
	for _, each := range all {
		if each == one {
			return true
		}
	}
	return false
}
