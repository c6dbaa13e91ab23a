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
	seq       int64
	payload   []byte
	sealed    []sealing
	statement statement
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
			for _, next := range entries {
				parts, err := whole.add(next)
				if err != nil {
					return nil, fmt.Errorf("entry %d: %w", next.seq, err)
				}
				signatures[n] = append(signatures[n], parts...)
			}
		}
		if !withSignatures {
			continue
		}
		err = inParallel(int(count), func(n int) error {
			if wrong := firstWrong(signatures[n]); wrong >= 0 {
				bad := signatures[n][wrong]
				return fmt.Errorf("entry %d: the signature of %s does not hold", bad.seq, bad.role)
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
func (t *trail) add(next entry) ([]signature, error) {
	st := next.statement
	if next.seq == 0 {
		t.session, t.first = st.session, st.kind
	}
	if st.session != t.session {
		return nil, fmt.Errorf("belongs to session %q, not %q", st.session, t.session)
	}
	if st.time < t.clock {
		return nil, errors.New("is dated before the entry before it")
	}
	t.clock = st.time
	if t.keys[st.key] {
		return nil, fmt.Errorf("the key %q appears twice", st.key)
	}
	t.keys[st.key] = true
	if t.closed && !kinds.mayFollowTheEnd(st.kind) {
		return nil, fmt.Errorf("a %q entry follows the end of the session", st.kind)
	}
	t.closed = t.closed || st.kind == "close"
	before := t.policy
	if next.seq == 0 {
		before = st.policy
	}
	after, err := follow(t.policy, st)
	if err != nil {
		return nil, err
	}
	signatures, err := signaturesOf(next, before)
	if err != nil {
		return nil, err
	}
	t.policy = after
	for _, signed := range signatures {
		t.signed[signed.role]++
	}
	if st.kind == "verdict" {
		t.verdicts = append(t.verdicts, st)
	}
	files, lists := st.evidence()
	for _, digest := range files {
		if _, known := t.evidence[digest]; !known {
			t.evidence[digest] = next.seq
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
	for n, line := range data {
		seq := number*256 + int64(n)
		if entries[n], err = openEntry(line, seq, stored); err != nil {
			return nil, fmt.Errorf("entry %d: %w", seq, err)
		}
	}
	return entries, nil
}

func openEntry(data []byte, seq int64, stored tlog.HashReader) (entry, error) {
	opened := entry{seq: seq}
	payload, signatures, cut := bytes.Cut(bytes.TrimPrefix(data, []byte(opening)), []byte(between))
	if !cut || !bytes.HasPrefix(data, []byte(opening)) || !bytes.HasSuffix(signatures, []byte("}")) {
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
	if opened.statement, err = readStatement(opened.payload); err != nil {
		return opened, err
	}
	if opened.statement.seq != seq {
		return opened, fmt.Errorf("says it is entry %d", opened.statement.seq)
	}
	before, err := rootOf(seq, stored)
	if err != nil {
		return opened, err
	}
	if opened.statement.prevRoot != "sha256:"+hex.EncodeToString(before) {
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
	var seals []sealing
	for _, value := range list {
		seal, err := members(value, "keyid", "sig")
		if err != nil {
			return nil, err
		}
		id, isText := seal["keyid"].(string)
		encoded, _ := seal["sig"].(string)
		signature, isBase64 := decoded(encoded)
		if !isText || !isBase64 || len(signature) != ed25519.SignatureSize {
			return nil, errors.New("a signature has another form")
		}
		seals = append(seals, sealing{id, signature})
	}
	return seals, nil
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
func signaturesOf(signed entry, current *policy) ([]signature, error) {
	kind, allowed := current.allowed(signed.statement)
	message := append([]byte(fmt.Sprintf("DSSEv1 %d %s %d ", len(payloadType), payloadType, len(signed.payload))), signed.payload...)
	var signatures []signature
	for _, seal := range signed.sealed {
		key, err := current.key(seal.keyID, signed.seq)
		if err != nil {
			return nil, err
		}
		if !contains(allowed, key.role) {
			return nil, fmt.Errorf("a %q entry is signed by %s, may be by %s", kind, key.role, strings.Join(allowed, " or "))
		}
		signatures = append(signatures, signature{signed.seq, key.role, key.bytes(), message, seal.data})
	}
	return signatures, nil
}

func contains(all []string, value string) bool {
	for _, member := range all {
		if member == value {
			return true
		}
	}
	return false
}
