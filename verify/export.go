package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

const tileHeight = 8

// tilePath is where C2SP tlog-tiles puts a tile; sumdb has the same numbers with the height in front.
func tilePath(t tlog.Tile) string {
	path := strings.TrimPrefix(t.Path(), fmt.Sprintf("tile/%d/", t.H))
	return filepath.Join("tile", strings.Replace(path, "data/", "entries/", 1))
}

// bundleTile returns the tile of entries with this number in a log of so many entries.
func bundleTile(number, size int64) tlog.Tile {
	width := size - number*256
	if width > 256 {
		width = 256
	}
	return tlog.Tile{H: tileHeight, L: -1, N: number, W: int(width)}
}

func bundle(dir string, number, size int64) ([][]byte, error) {
	tile := bundleTile(number, size)
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
	if len(entries) != tile.W {
		return nil, fmt.Errorf("%s holds %d entries, not %d", tilePath(tile), len(entries), tile.W)
	}
	return entries, nil
}

// checkTree builds the tree from the entries with sumdb's own code and compares the root and every tile. It returns
// the hashes of the tree and the paths of all tiles.
func checkTree(dir string, size int64, root tlog.Hash) (tlog.HashReader, []string, error) {
	var hashes []tlog.Hash
	var paths []string
	stored := tlog.HashReaderFunc(func(wanted []int64) ([]tlog.Hash, error) {
		picked := make([]tlog.Hash, len(wanted))
		for n, index := range wanted {
			picked[n] = hashes[index]
		}
		return picked, nil
	})
	for seq := int64(0); seq < size; {
		paths = append(paths, tilePath(bundleTile(seq/256, size)))
		entries, err := bundle(dir, seq/256, size)
		if err != nil {
			return nil, nil, err
		}
		for _, entry := range entries {
			added, err := tlog.StoredHashes(seq, entry, stored)
			if err != nil {
				return nil, nil, err
			}
			hashes = append(hashes, added...)
			seq++
		}
	}
	actual, err := tlog.TreeHash(size, stored)
	if err != nil {
		return nil, nil, err
	}
	if actual != root {
		return nil, nil, fmt.Errorf("the entries have the root %s, the head says %s", actual, root)
	}
	for _, tile := range tilesOf(size) {
		paths = append(paths, tilePath(tile))
		expected, err := tlog.ReadTileData(tile, stored)
		if err != nil {
			return nil, nil, err
		}
		actual, err := read(filepath.Join(dir, tilePath(tile)))
		if err != nil {
			return nil, nil, err
		}
		if !bytes.Equal(actual, expected) {
			return nil, nil, fmt.Errorf("%s is not what follows from the entries", tilePath(tile))
		}
	}
	return stored, paths, nil
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
