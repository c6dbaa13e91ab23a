package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

var (
	storeForm = regexp.MustCompile(`^store/[0-9a-f]{2}/[0-9a-f]{62}$`)
	unnamable = regexp.MustCompile(`[^A-Za-z0-9.]+`)
)

// filesOf lists the files below a folder. Anything but files and folders is refused before anything is opened: a link
// shows what lies elsewhere, and a FIFO never ends.
func filesOf(dir string) (files, folders map[string]bool, err error) {
	files, folders = map[string]bool{}, map[string]bool{}
	err = filepath.WalkDir(dir, func(path string, file fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		switch {
		case err != nil || name == ".":
			return err
		case file.IsDir():
			folders[name] = true
		case file.Type().IsRegular():
			files[name] = true
		default:
			return fmt.Errorf("%q is neither a file nor a folder", name)
		}
		return nil
	})
	return files, folders, err
}

// derived returns what follows from the entries and the head beside tiles: policy, keys, and a proof for every verdict.
func derived(whole *trail, h head, note []byte, stored tlog.HashReader) (map[string][]byte, error) {
	keys := whole.policy.logKeys(h.size)
	expected := map[string][]byte{
		"policy.json": whole.policy.written,
		"log.vkey":    []byte(keys[len(keys)-1] + "\n"),
	}
	for _, key := range whole.policy.keys {
		expected[fmt.Sprintf("keys/%s-%.16s.pem", key.role, key.id)] = key.pem()
	}
	for _, verdict := range whole.verdicts {
		hashes, err := tlog.ProveRecord(h.size, verdict.seq, stored)
		if err != nil {
			return nil, err
		}
		proof := fmt.Sprintf("c2sp.org/tlog-proof@v1\nindex %d\n", verdict.seq)
		for _, hash := range hashes {
			proof += hash.String() + "\n"
		}
		expected[proofName(verdict)] = append([]byte(proof+"\n"), note...)
	}
	return expected, nil
}

func proofName(verdict statement) string {
	name := unnamable.ReplaceAllString(verdict.key, "-")
	if len(name) > 80 {
		name = name[:80]
	}
	return fmt.Sprintf("proofs/%06d-%s.tlog-proof", verdict.seq, name)
}

// checkFiles compares every file with what it has to be, and finds what is missing or no part of an export. It returns
// how many files the content store has.
func checkFiles(dir string, files, folders map[string]bool, tiles []string, expected map[string][]byte, whole *trail) (int, error) {
	part := map[string]bool{"checkpoint": true, "report.html": true}
	for _, name := range tiles {
		part[name] = true
	}
	for name, data := range expected {
		part[name] = true
		actual, err := read(filepath.Join(dir, name))
		if err != nil {
			return 0, err
		}
		if !bytes.Equal(actual, data) {
			return 0, fmt.Errorf("%s is not what follows from the entries", name)
		}
	}
	for name := range part {
		if !files[name] {
			return 0, fmt.Errorf("%s is missing", name)
		}
	}
	var stored []string
	for name := range files {
		if storeForm.MatchString(name) {
			stored = append(stored, name)
		} else if !part[name] {
			return 0, fmt.Errorf("%q is no part of the export", name)
		}
		for folder := filepath.Dir(name); folder != "."; folder = filepath.Dir(folder) {
			delete(folders, folder)
		}
	}
	for name := range folders {
		return 0, fmt.Errorf("%q is a folder without a file of the export", name)
	}
	for _, list := range whole.lists {
		for _, digest := range listed(dir, list) {
			if _, known := whole.evidence[digest]; !known {
				whole.evidence[digest] = whole.evidence[list]
			}
		}
	}
	for digest, seq := range whole.evidence {
		if !files["store/"+digest[7:9]+"/"+digest[9:]] {
			return 0, fmt.Errorf("entry %d: %s is missing from the store", seq, digest)
		}
	}
	return len(stored), inParallel(len(stored), func(n int) error {
		data, err := read(filepath.Join(dir, stored[n]))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		if strings.ReplaceAll(strings.TrimPrefix(stored[n], "store/"), "/", "") != hex.EncodeToString(sum[:]) {
			return fmt.Errorf("the bytes of %s do not match its name", stored[n])
		}
		return nil
	})
}

// listed returns the digests that a file of the store names. One that cannot be read is missing or has other bytes than
// its name says, which is found anyway.
func listed(dir, digest string) (names []string) {
	data, err := read(filepath.Join(dir, "store", digest[7:9], digest[9:]))
	if err != nil {
		return nil
	}
	value, err := parseCanonical(data)
	if err != nil {
		return nil
	}
	return digestsAt(value, []string{"*"}, "")
}

func read(path string) ([]byte, error) { return os.ReadFile(path) }
