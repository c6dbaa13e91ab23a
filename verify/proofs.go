package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

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
