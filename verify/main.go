// Verify checks an exported trail without Peergate: the signed head, the tree over all entries, every entry's own
// signature, every proof, and that the log grew from heads that were kept elsewhere.
//
//	verify [-tree] [-anchor NOTE]... EXPORT
//
// It shares no code with Peergate. The tree is checked by golang.org/x/mod/sumdb/tlog and the head by
// golang.org/x/mod/sumdb/note; entries are read as DSSE envelopes and in-toto statements with the standard library.
//
// Exit codes: 0 everything holds, 1 something does not, 3 the export cannot be read.
package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const tileHeight = 8

type policy struct {
	Origin string              `json:"origin"`
	Keys   []policyKey         `json:"keys"`
	Roles  map[string][]string `json:"roles"`
}

type policyKey struct {
	ID     string `json:"id"`
	Role   string `json:"role"`
	Public string `json:"public"`
	Since  int64  `json:"since"`
	Until  *int64 `json:"until"`
}

type envelope struct {
	Payload     string `json:"payload"`
	PayloadType string `json:"payloadType"`
	Signatures  []struct {
		KeyID string `json:"keyid"`
		Sig   string `json:"sig"`
	} `json:"signatures"`
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

type anchors []string

func (a *anchors) String() string     { return strings.Join(*a, " ") }
func (a *anchors) Set(s string) error { *a = append(*a, s); return nil }

func main() {
	var kept anchors
	flag.Var(&kept, "anchor", "signed head that was kept elsewhere; can be repeated")
	treeOnly := flag.Bool("tree", false, "only head, tree, tiles and proofs; not every entry's own signature")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: verify [-tree] [-anchor NOTE]... EXPORT")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(3)
	}
	dir := flag.Arg(0)
	head, size, err := checkpoint(dir, filepath.Join(dir, "checkpoint"))
	if err != nil {
		fail(err)
	}
	fmt.Printf("head: %d entries, root %s, signed by %s\n", size, head, origin(dir))
	if err := checkTree(dir, size, head); err != nil {
		fail(err)
	}
	fmt.Printf("tree: the root follows from the %d entries, and every tile is right\n", size)
	if *treeOnly {
		fmt.Println("not checked: the signatures of the entries themselves")
	} else {
		signed, err := checkEntries(dir, size)
		if err != nil {
			fail(err)
		}
		fmt.Printf("entries: %s\n", signed)
	}
	count, err := checkProofs(dir, size, head)
	if err != nil {
		fail(err)
	}
	fmt.Printf("proofs: %d of verdicts hold\n", count)
	files, err := checkStore(dir)
	if err != nil {
		fail(err)
	}
	fmt.Printf("store: %d files have the digest in their name\n", files)
	for _, path := range kept {
		if err := checkAnchor(dir, path, size, head); err != nil {
			fail(fmt.Errorf("anchor %s: %w", path, err))
		}
	}
	if len(kept) == 0 {
		fmt.Println("not proven: that nothing was cut off or written anew (give -anchor with a head kept elsewhere)")
	}
	fmt.Println("not proven: whose keys these are (compare policy.json and log.vkey with copies kept elsewhere)")
	fmt.Println("OK")
}

// unreadable is a file that is not there or has no such form, as opposed to one that says something wrong.
var unreadable = errors.New("cannot be read")

func fail(err error) {
	fmt.Println("NOT OK:", err)
	if errors.Is(err, unreadable) {
		os.Exit(3)
	}
	os.Exit(1)
}

func read(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", unreadable, err)
	}
	return data, nil
}

func origin(dir string) string {
	vkey, _ := read(filepath.Join(dir, "log.vkey"))
	return strings.SplitN(string(vkey), "+", 2)[0]
}

// checkpoint reads a signed head and checks its signature with the export's log.vkey.
func checkpoint(dir, path string) (tlog.Hash, int64, error) {
	var root tlog.Hash
	vkey, err := read(filepath.Join(dir, "log.vkey"))
	if err != nil {
		return root, 0, err
	}
	verifier, err := note.NewVerifier(strings.TrimSpace(string(vkey)))
	if err != nil {
		return root, 0, fmt.Errorf("log.vkey: %w", err)
	}
	data, err := read(path)
	if err != nil {
		return root, 0, err
	}
	opened, err := note.Open(data, note.VerifierList(verifier))
	if err != nil {
		return root, 0, fmt.Errorf("%s: %w", path, err)
	}
	lines := strings.Split(strings.TrimSuffix(opened.Text, "\n"), "\n")
	if len(lines) != 3 || lines[0] != verifier.Name() {
		return root, 0, fmt.Errorf("%s: is not a head of the log %s", path, verifier.Name())
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || size < 1 {
		return root, 0, fmt.Errorf("%s: %q is no size", path, lines[1])
	}
	root, err = tlog.ParseHash(lines[2])
	if err != nil {
		return root, 0, fmt.Errorf("%s: %w", path, err)
	}
	return root, size, nil
}

// tilePath is where C2SP tlog-tiles puts a tile; sumdb has the same numbers with the height in front.
func tilePath(t tlog.Tile) string {
	path := strings.TrimPrefix(t.Path(), fmt.Sprintf("tile/%d/", t.H))
	return filepath.Join("tile", strings.Replace(path, "data/", "entries/", 1))
}

type tileReader struct{ dir string }

func (r tileReader) Height() int                     { return tileHeight }
func (r tileReader) SaveTiles([]tlog.Tile, [][]byte) {}
func (r tileReader) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var found [][]byte
	for _, tile := range tiles {
		data, err := read(filepath.Join(r.dir, tilePath(tile)))
		if err != nil {
			return nil, err
		}
		found = append(found, data)
	}
	return found, nil
}

func bundle(dir string, number, size int64) ([][]byte, error) {
	width := size - number*256
	if width > 256 {
		width = 256
	}
	tile := tlog.Tile{H: tileHeight, L: -1, N: number, W: int(width)}
	data, err := read(filepath.Join(dir, tilePath(tile)))
	if err != nil {
		return nil, err
	}
	var entries [][]byte
	for len(data) > 0 {
		if len(data) < 2 || len(data) < 2+int(binary.BigEndian.Uint16(data)) {
			return nil, fmt.Errorf("%s ends inside an entry", tilePath(tile))
		}
		end := 2 + int(binary.BigEndian.Uint16(data))
		entries = append(entries, data[2:end])
		data = data[end:]
	}
	if int64(len(entries)) != width {
		return nil, fmt.Errorf("%s holds %d entries, not %d", tilePath(tile), len(entries), width)
	}
	return entries, nil
}

// checkTree builds the tree from the entries with sumdb's own code and compares the root and every tile.
func checkTree(dir string, size int64, head tlog.Hash) error {
	var hashes []tlog.Hash
	stored := tlog.HashReaderFunc(func(wanted []int64) ([]tlog.Hash, error) {
		var found []tlog.Hash
		for _, index := range wanted {
			found = append(found, hashes[index])
		}
		return found, nil
	})
	for seq := int64(0); seq < size; {
		entries, err := bundle(dir, seq/256, size)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			added, err := tlog.StoredHashes(seq, entry, stored)
			if err != nil {
				return err
			}
			hashes = append(hashes, added...)
			seq++
		}
	}
	root, err := tlog.TreeHash(size, stored)
	if err != nil {
		return err
	}
	if root != head {
		return fmt.Errorf("the entries have the root %s, the head says %s", root, head)
	}
	for _, tile := range tilesOf(size) {
		expected, err := tlog.ReadTileData(tile, stored)
		if err != nil {
			return err
		}
		found, err := read(filepath.Join(dir, tilePath(tile)))
		if err != nil {
			return err
		}
		if !bytes.Equal(found, expected) {
			return fmt.Errorf("%s is not what follows from the entries", tilePath(tile))
		}
	}
	return nil
}

// tilesOf lists the tiles of a tree: the full ones of every level, and what is left over as a partial one.
func tilesOf(size int64) []tlog.Tile {
	var tiles []tlog.Tile
	for level := 0; size>>(tileHeight*level) > 0; level++ {
		hashes := size >> (tileHeight * level)
		for number := int64(0); number*256 < hashes; number++ {
			width := hashes - number*256
			if width > 256 {
				width = 256
			}
			tiles = append(tiles, tlog.Tile{H: tileHeight, L: level, N: number, W: int(width)})
		}
	}
	return tiles
}

// checkEntries checks every entry's own signature, its role, its number and the tree it says was before it.
func checkEntries(dir string, size int64) (string, error) {
	var current *policy
	signed := map[string]int{}
	var hashes []tlog.Hash
	stored := tlog.HashReaderFunc(func(wanted []int64) ([]tlog.Hash, error) {
		var found []tlog.Hash
		for _, index := range wanted {
			found = append(found, hashes[index])
		}
		return found, nil
	})
	for seq := int64(0); seq < size; {
		entries, err := bundle(dir, seq/256, size)
		if err != nil {
			return "", err
		}
		for _, entry := range entries {
			before, err := rootOf(seq, stored)
			if err != nil {
				return "", err
			}
			if current, err = checkEntry(entry, seq, before, current, signed); err != nil {
				return "", fmt.Errorf("entry %d: %w", seq, err)
			}
			added, err := tlog.StoredHashes(seq, entry, stored)
			if err != nil {
				return "", err
			}
			hashes = append(hashes, added...)
			seq++
		}
	}
	var roles []string
	for role := range signed {
		roles = append(roles, fmt.Sprintf("%d signed by %s", signed[role], role))
	}
	sort.Strings(roles)
	return strings.Join(roles, ", "), comparePolicy(dir, current)
}

func rootOf(size int64, stored tlog.HashReader) ([]byte, error) {
	if size == 0 {
		empty := sha256.Sum256(nil)
		return empty[:], nil
	}
	root, err := tlog.TreeHash(size, stored)
	return root[:], err
}

func checkEntry(data []byte, seq int64, before []byte, current *policy, signed map[string]int) (*policy, error) {
	var sealed envelope
	if err := json.Unmarshal(data, &sealed); err != nil {
		return nil, err
	}
	payload, err := base64.StdEncoding.DecodeString(sealed.Payload)
	if err != nil {
		return nil, err
	}
	var said statement
	if err := json.Unmarshal(payload, &said); err != nil {
		return nil, err
	}
	if said.Type != "https://in-toto.io/Statement/v1" || sealed.PayloadType != "application/vnd.in-toto+json" {
		return nil, errors.New("is no in-toto statement")
	}
	if said.Predicate.Seq != seq {
		return nil, fmt.Errorf("says it is entry %d", said.Predicate.Seq)
	}
	if said.Predicate.PrevRoot != "sha256:"+hex.EncodeToString(before) {
		return nil, errors.New("names another tree before it")
	}
	if seq == 0 {
		current = said.Predicate.Policy
	}
	if current == nil {
		return nil, errors.New("there is no policy of keys")
	}
	if len(sealed.Signatures) == 0 {
		return nil, errors.New("is not signed")
	}
	kind := said.Predicate.Kind
	allowed, found := current.Roles[kind]
	if !found {
		allowed = current.Roles["*"]
	}
	message := fmt.Sprintf("DSSEv1 %d %s %d %s", len(sealed.PayloadType), sealed.PayloadType, len(payload), payload)
	for _, one := range sealed.Signatures {
		key, err := current.key(one.KeyID, seq)
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
		signature, err := base64.StdEncoding.DecodeString(one.Sig)
		if err != nil || !ed25519.Verify(public, []byte(message), signature) {
			return nil, fmt.Errorf("the signature of %s does not hold", key.Role)
		}
		signed[key.Role]++
	}
	if seq > 0 && kind == "keys" {
		if said.Predicate.Policy == nil {
			return nil, errors.New("changes keys and names none")
		}
		return said.Predicate.Policy, nil
	}
	return current, nil
}

func (p *policy) key(id string, seq int64) (policyKey, error) {
	for _, key := range p.Keys {
		if key.ID == id && key.Since <= seq && (key.Until == nil || seq < *key.Until) {
			return key, nil
		}
	}
	return policyKey{}, fmt.Errorf("is signed with the unknown key %.16s", id)
}

func contains(all []string, one string) bool {
	for _, each := range all {
		if each == one {
			return true
		}
	}
	return false
}

// comparePolicy compares policy.json, for people, with the policy the entries themselves end with.
func comparePolicy(dir string, current *policy) error {
	data, err := read(filepath.Join(dir, "policy.json"))
	if err != nil {
		return err
	}
	var told policy
	if err := json.Unmarshal(data, &told); err != nil {
		return fmt.Errorf("policy.json: %w", err)
	}
	one, _ := json.Marshal(told)
	two, _ := json.Marshal(current)
	if !bytes.Equal(one, two) {
		return errors.New("policy.json is not the policy of the entries")
	}
	vkey, err := read(filepath.Join(dir, "log.vkey"))
	if err != nil {
		return err
	}
	parts := strings.SplitN(strings.TrimSpace(string(vkey)), "+", 3)
	public, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	for _, key := range current.Keys {
		if err == nil && key.Role == "log" && len(public) > 0 && key.Public == hex.EncodeToString(public[1:]) {
			return nil
		}
	}
	return errors.New("log.vkey is not a key of the log in the policy")
}

// checkProofs checks every tlog-proof: its entry is in the tree of this head. It compares with sumdb's own proof too.
func checkProofs(dir string, size int64, head tlog.Hash) (int, error) {
	files, err := filepath.Glob(filepath.Join(dir, "proofs", "*.tlog-proof"))
	if err != nil {
		return 0, err
	}
	reader := tlog.TileHashReader(tlog.Tree{N: size, Hash: head}, tileReader{dir})
	signedHead, err := read(filepath.Join(dir, "checkpoint"))
	if err != nil {
		return 0, err
	}
	for _, path := range files {
		data, err := read(path)
		if err != nil {
			return 0, err
		}
		parts := strings.SplitN(string(data), "\n\n", 2)
		lines := strings.Split(parts[0], "\n")
		if len(parts) != 2 || len(lines) < 2 || lines[0] != "c2sp.org/tlog-proof@v1" || parts[1] != string(signedHead) {
			return 0, fmt.Errorf("%s is no proof under this head", path)
		}
		seq, err := strconv.ParseInt(strings.TrimPrefix(lines[1], "index "), 10, 64)
		if err != nil || seq < 0 || seq >= size {
			return 0, fmt.Errorf("%s: %q is no entry", path, lines[1])
		}
		var proof tlog.RecordProof
		for _, line := range lines[2:] {
			hash, err := tlog.ParseHash(line)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", path, err)
			}
			proof = append(proof, hash)
		}
		entries, err := bundle(dir, seq/256, size)
		if err != nil {
			return 0, err
		}
		if err := tlog.CheckRecord(proof, size, head, seq, tlog.RecordHash(entries[seq%256])); err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		own, err := tlog.ProveRecord(size, seq, reader)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		if fmt.Sprint(own) != fmt.Sprint(proof) {
			return 0, fmt.Errorf("%s: another proof than the tiles give", path)
		}
	}
	return len(files), nil
}

// checkStore compares every file of the content store with the digest its name is made of.
func checkStore(dir string) (int, error) {
	files, err := filepath.Glob(filepath.Join(dir, "store", "*", "*"))
	if err != nil {
		return 0, err
	}
	for _, path := range files {
		data, err := read(path)
		if err != nil {
			return 0, err
		}
		sum := sha256.Sum256(data)
		if filepath.Base(filepath.Dir(path))+filepath.Base(path) != hex.EncodeToString(sum[:]) {
			return 0, fmt.Errorf("%s has other bytes than its name says", path)
		}
	}
	return len(files), nil
}

// checkAnchor proves from the tiles that the log grew from a head that was kept elsewhere.
func checkAnchor(dir, path string, size int64, head tlog.Hash) error {
	older, olderSize, err := checkpoint(dir, path)
	if err != nil {
		return err
	}
	if olderSize > size {
		return fmt.Errorf("is of %d entries, the export has %d: entries were cut off", olderSize, size)
	}
	reader := tlog.TileHashReader(tlog.Tree{N: size, Hash: head}, tileReader{dir})
	proof, err := tlog.ProveTree(size, olderSize, reader)
	if err != nil {
		return err
	}
	if err := tlog.CheckTree(proof, size, head, olderSize, older); err != nil {
		return fmt.Errorf("the first %d entries are another history: %w", olderSize, err)
	}
	fmt.Printf("anchor %s: the log grew from its %d entries to %d\n", path, olderSize, size)
	if olderSize < size {
		fmt.Printf("not proven: entries %d to %d, which no anchor covers\n", olderSize, size-1)
	}
	return nil
}
