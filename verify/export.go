package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const tileHeight = 8

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

// checkTree builds the tree from the entries with sumdb's own code and compares the root and every tile. It returns
// the hashes of the tree.
func checkTree(dir string, size int64, head tlog.Hash) (tlog.HashReader, error) {
	hashes := make([]tlog.Hash, 0, 2*size)
	stored := tlog.HashReaderFunc(func(wanted []int64) ([]tlog.Hash, error) {
		found := make([]tlog.Hash, len(wanted))
		for n, index := range wanted {
			found[n] = hashes[index]
		}
		return found, nil
	})
	for seq := int64(0); seq < size; {
		entries, err := bundle(dir, seq/256, size)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			added, err := tlog.StoredHashes(seq, entry, stored)
			if err != nil {
				return nil, err
			}
			hashes = append(hashes, added...)
			seq++
		}
	}
	root, err := tlog.TreeHash(size, stored)
	if err != nil {
		return nil, err
	}
	if root != head {
		return nil, fmt.Errorf("the entries have the root %s, the head says %s", root, head)
	}
	for _, tile := range tilesOf(size) {
		expected, err := tlog.ReadTileData(tile, stored)
		if err != nil {
			return nil, err
		}
		found, err := read(filepath.Join(dir, tilePath(tile)))
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(found, expected) {
			return nil, fmt.Errorf("%s is not what follows from the entries", tilePath(tile))
		}
	}
	return stored, nil
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
