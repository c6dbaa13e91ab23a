package main

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// A policy says whose keys may sign which kind of entry.
type policy struct {
	origin    string
	keys      []policyKey
	roles     map[string][]string
	witnesses []interface{}
	written   []byte
}

type policyKey struct {
	id      string
	role    string
	public  string
	since   int64
	until   int64
	ended   bool
	revoked bool
}

var (
	hexForm   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	roleNames = map[string]bool{"log": true, "builder": true, "reviewer": true, "human": true}
	spki      = []byte{0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00}
)

// readPolicy reads a policy: all its members and no others, and keys whose ids are theirs.
func readPolicy(value interface{}) (*policy, error) {
	top, err := members(value, "keys", "origin", "roles", "schema_version", "witnesses")
	if err != nil {
		return nil, err
	}
	result := policy{roles: map[string][]string{}, written: canonical(top)}
	origin, isText := top["origin"].(string)
	keys, isList := top["keys"].([]interface{})
	roles, isObject := top["roles"].(object)
	witnesses, areList := top["witnesses"].([]interface{})
	if !isText || !isList || !isObject || !areList || top["schema_version"] != number("1") {
		return nil, errors.New("a member has another type")
	}
	result.origin, result.witnesses = origin, witnesses
	seen := map[string]bool{}
	for _, value := range keys {
		key, err := readKey(value)
		if err != nil {
			return nil, err
		}
		if seen[key.id] {
			return nil, fmt.Errorf("key %.16s appears twice", key.id)
		}
		seen[key.id] = true
		result.keys = append(result.keys, key)
	}
	for kind, listed := range roles {
		names, ok := listed.([]interface{})
		if !ok {
			return nil, errors.New("roles are no list")
		}
		result.roles[kind] = nil
		for _, value := range names {
			name, _ := value.(string)
			if !roleNames[name] {
				return nil, fmt.Errorf("there is no role %q", name)
			}
			result.roles[kind] = append(result.roles[kind], name)
		}
	}
	for _, witness := range witnesses {
		if text, ok := witness.(string); !ok || !isNoteKey(text) {
			return nil, errors.New("a witness is no public key of a note")
		}
	}
	return &result, nil
}

func readKey(value interface{}) (policyKey, error) {
	var key policyKey
	fields, err := members(value, "id", "public", "revoked", "role", "since", "until")
	if err != nil {
		return key, err
	}
	var ok [5]bool
	key.id, ok[0] = fields["id"].(string)
	key.public, ok[1] = fields["public"].(string)
	key.revoked, ok[2] = fields["revoked"].(bool)
	key.role, ok[3] = fields["role"].(string)
	key.since, ok[4] = wholeNumber(fields["since"])
	for _, valid := range ok {
		if !valid {
			return key, errors.New("a member of a key has another type")
		}
	}
	if fields["until"] != nil {
		if key.until, key.ended = wholeNumber(fields["until"]); !key.ended {
			return key, errors.New("a member of a key has another type")
		}
	}
	if !hexForm.MatchString(key.id) || !hexForm.MatchString(key.public) || !roleNames[key.role] {
		return key, errors.New("a key has no id, no public half or no role")
	}
	sum := sha256.Sum256(key.der())
	if hex.EncodeToString(sum[:]) != key.id {
		return key, fmt.Errorf("the id of key %.16s is not its own", key.id)
	}
	return key, nil
}

func (k policyKey) bytes() ed25519.PublicKey {
	public, _ := hex.DecodeString(k.public)
	return public
}

func (k policyKey) der() []byte { return append(append([]byte{}, spki...), k.bytes()...) }

func (k policyKey) pem() []byte {
	text := base64.StdEncoding.EncodeToString(k.der())
	return []byte("-----BEGIN PUBLIC KEY-----\n" + text + "\n-----END PUBLIC KEY-----\n")
}

// key returns the key that may sign entry seq under an id.
func (p *policy) key(id string, seq int64) (policyKey, error) {
	for _, key := range p.keys {
		if key.id == id && key.since <= seq && (!key.ended || seq < key.until) {
			return key, nil
		}
	}
	return policyKey{}, fmt.Errorf("is signed with the unknown key %.16s", id)
}

// allowed returns the name under which a policy lists the signers of an entry, and which roles they are.
func (p *policy) allowed(st statement) (string, []string) {
	kind := st.kind
	if _, own := p.roles[kind+":person"]; own && st.body["reviewer"] == "person" {
		kind += ":person" // policies have roles of their own for a person's verdicts
	}
	if roles := p.roles[kind]; len(roles) > 0 {
		return kind, roles
	}
	return kind, p.roles["*"]
}

// logKeys returns the keys that may sign a head over so many entries, in the form of note.NewVerifier.
func (p *policy) logKeys(size int64) []string {
	var notes []string
	for _, key := range p.keys {
		if key.role == "log" && key.since < size && (!key.ended || size <= key.until) {
			public := append([]byte{1}, key.bytes()...)
			sum := sha256.Sum256(append([]byte(p.origin+"\n"), public...))
			id := binary.BigEndian.Uint32(sum[:4])
			notes = append(notes, fmt.Sprintf("%s+%08x+%s", p.origin, id, base64.StdEncoding.EncodeToString(public)))
		}
	}
	return notes
}

// isSignedHead says whether a key of the log signed a head: signed note, with sumdb's own keys and signatures.
func (p *policy) isSignedHead(h head) bool {
	for _, key := range p.logKeys(h.size) {
		verifier, err := note.NewVerifier(key)
		if err != nil {
			continue
		}
		for _, sealed := range h.signatures {
			if sealed.name == verifier.Name() && sealed.hash == verifier.KeyHash() && verifier.Verify([]byte(h.text), sealed.data) {
				return true
			}
		}
	}
	return false
}

// follow returns the policy in force after an entry, or why the entry may not change it.
//
// What a key was allowed in the past stays: a key can only end, and a new one only begin, after the entry. Roles,
// witnesses and the name of the log never change.
func follow(current *policy, st statement) (*policy, error) {
	if st.seq == 0 {
		if st.policy == nil {
			return nil, errors.New("there is no policy of keys")
		}
		return st.policy, nil
	}
	if st.kind != "keys" {
		if st.policy != nil {
			return nil, fmt.Errorf("a %q entry changes no keys", st.kind)
		}
		return current, nil
	}
	after := st.policy
	if after == nil {
		return nil, errors.New("changes keys and names none")
	}
	same := after.origin == current.origin && reflect.DeepEqual(after.roles, current.roles) &&
		reflect.DeepEqual(after.witnesses, current.witnesses)
	if !same {
		return nil, errors.New("changes more of the policy than keys")
	}
	if len(after.keys) < len(current.keys) {
		return nil, errors.New("keys are missing from the policy")
	}
	for n, key := range after.keys {
		if n >= len(current.keys) {
			if key.since != st.seq+1 || key.ended || key.revoked {
				return nil, fmt.Errorf("the new key %.16s does not begin after the entry", key.id)
			}
			continue
		}
		lawful := current.keys[n]
		if !lawful.ended && key.ended && key.until == st.seq+1 {
			lawful.until, lawful.ended, lawful.revoked = key.until, true, key.revoked
		}
		if key != lawful {
			return nil, fmt.Errorf("the past of key %.16s is another", key.id)
		}
	}
	return after, nil
}

// isNoteKey says whether a text is the public key of a log or a witness: name+8 hex digits+base64 of type and key.
func isNoteKey(text string) bool {
	parts := strings.SplitN(text, "+", 3)
	if len(parts) != 3 || !isName(parts[0]) {
		return false
	}
	data, ok := decoded(parts[2])
	if !ok || len(data) != 33 || data[0] != 1 && data[0] != 4 {
		return false
	}
	sum := sha256.Sum256(append([]byte(parts[0]+"\n"), data...))
	return parts[1] == hex.EncodeToString(sum[:4])
}
