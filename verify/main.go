// Verify checks an exported trail without Peergate: the signed head, the tree over all entries, every entry's own
// form, place and signature, every file, and that the log grew from heads that were kept elsewhere.
//
//	verify [-tree] [-anchor NOTE]... EXPORT...
//
// Every signature is checked alone by crypto/ed25519, or with the build tag batch many of them at once (batch.go).
//
// It shares no code with Peergate. The tree is checked by golang.org/x/mod/sumdb/tlog and the head by
// golang.org/x/mod/sumdb/note; entries are read with the standard library as DSSE envelopes and in-toto statements, by
// a JSON reader that accepts canonical bytes only (json.go).
//
// Exit codes: 0 everything holds and the session is closed, 1 something does not hold, 2 everything holds and the
// session is open or newer than the anchors, 3 this is no export or an anchor cannot be read. For several exports it
// prints one line each, which begins with the code, and ends with the worst of them: 1, 3, 2, 0.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	verified = iota
	tampered
	open
	unreadable
)

type anchors []string

func (a *anchors) String() string     { return strings.Join(*a, " ") }
func (a *anchors) Set(s string) error { *a = append(*a, s); return nil }

func main() {
	var paths anchors
	// A wrong option must not end with 2, which says that everything holds.
	options := flag.NewFlagSet("verify", flag.ContinueOnError)
	options.Var(&paths, "anchor", "signed head that was kept elsewhere; can be repeated")
	treeOnly := options.Bool("tree", false, "all but the entries' own signatures")
	options.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: verify [-tree] [-anchor NOTE]... EXPORT...")
		options.PrintDefaults()
	}
	if err := options.Parse(os.Args[1:]); err != nil || options.NArg() == 0 {
		if err == nil {
			options.Usage()
		}
		os.Exit(unreadable)
	}
	worst := verified
	for _, dir := range options.Args() {
		var report strings.Builder
		code, err := verify(&report, dir, paths, !*treeOnly)
		if err != nil {
			fmt.Fprintln(&report, "NOT OK:", err)
		}
		if options.NArg() == 1 {
			fmt.Print(report.String())
		} else {
			lines := strings.Split(strings.TrimSpace(report.String()), "\n")
			fmt.Printf("%d %s: %s\n", code, dir, lines[len(lines)-1])
		}
		if worst == verified || code == tampered || code == unreadable && worst == open {
			worst = code
		}
	}
	os.Exit(worst)
}

// verify checks one export and returns the exit code for it.
func verify(out io.Writer, dir string, paths []string, withSignatures bool) (code int, err error) {
	defer func() {
		if failed := recover(); failed != nil {
			code, err = tampered, fmt.Errorf("%v", failed)
		}
	}()
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil || !isExport(dir) {
		return unreadable, errors.New("this is no export")
	}
	var older []head
	for _, path := range paths {
		data, err := read(path)
		if err != nil {
			return unreadable, fmt.Errorf("anchor %s: %w", path, err)
		}
		parsed, err := parseHead(data)
		if err != nil {
			return unreadable, fmt.Errorf("anchor %s: %w", path, err)
		}
		older = append(older, parsed)
	}
	files, folders, err := filesOf(dir)
	if err != nil {
		return tampered, err
	}
	note, err := read(filepath.Join(dir, "checkpoint"))
	if err != nil {
		return tampered, err
	}
	newest, err := parseHead(note)
	if err != nil {
		return tampered, fmt.Errorf("checkpoint: %w", err)
	}
	if newest.size == 0 {
		return tampered, errors.New("checkpoint: is of no entries")
	}
	stored, tiles, err := checkTree(dir, newest.size, newest.root)
	if err != nil {
		return tampered, err
	}
	whole, err := readEntries(dir, newest.size, stored, withSignatures)
	if err != nil {
		return tampered, err
	}
	if newest.origin != whole.policy.origin || !whole.policy.isSignedHead(newest) {
		return tampered, errors.New("checkpoint: is not signed by this log")
	}
	expected, err := derived(whole, newest, note, stored)
	if err != nil {
		return tampered, err
	}
	count, err := checkFiles(dir, files, folders, tiles, expected, whole)
	if err != nil {
		return tampered, err
	}
	fmt.Fprintf(out, "head: %d entries, root %s, signed by %s\n", newest.size, newest.root, newest.origin)
	fmt.Fprintf(out, "tree: the root follows from the %d entries, and every tile is right\n", newest.size)
	fmt.Fprintf(out, "entries: %s\n", whole.signers())
	fmt.Fprintf(out, "proofs: %d of verdicts hold\n", len(whole.verdicts))
	fmt.Fprintf(out, "store: %d files have the digest in their name, and none that an entry names is missing\n", count)
	newestAnchor, err := checkAnchors(out, whole, newest, older, paths, stored)
	if err != nil {
		return tampered, err
	}
	if !withSignatures {
		fmt.Fprintln(out, "not checked: the signatures of the entries themselves")
	}
	fmt.Fprintln(out, "not checked: what the entries mean (the forms of their bodies, grants, decisions, numbers) and what "+
		"report.html shows; `peergate audit verify` does that")
	fmt.Fprintln(out, "not proven: whose keys these are (compare policy.json and log.vkey with copies kept elsewhere)")
	if whole.first == "open" && !whole.closed {
		fmt.Fprintln(out, "OK, and the session is open")
		return open, nil
	}
	if len(older) > 0 && newestAnchor < newest.size {
		fmt.Fprintln(out, "OK, and newer than the anchors")
		return open, nil
	}
	fmt.Fprintln(out, "OK")
	return verified, nil
}

// isExport says whether a folder looks like an export.
func isExport(dir string) bool {
	note, err := os.Stat(filepath.Join(dir, "checkpoint"))
	if err != nil || !note.Mode().IsRegular() {
		return false
	}
	tiles, err := os.Stat(filepath.Join(dir, "tile"))
	return err == nil && tiles.IsDir()
}

// checkAnchors proves that the log grew from the heads that were kept elsewhere, and returns the size of the newest.
func checkAnchors(out io.Writer, whole *trail, newest head, older []head, paths []string, stored tlog.HashReader) (int64, error) {
	var most int64
	for n, past := range older {
		where := "anchor " + paths[n]
		if past.origin != newest.origin || !whole.policy.isSignedHead(past) {
			return 0, fmt.Errorf("%s: is not a head of the log %s", where, newest.origin)
		}
		if past.size > newest.size {
			return 0, fmt.Errorf("%s: is of %d entries, the export has %d: entries were cut off", where, past.size, newest.size)
		}
		proof, err := tlog.ProveTree(newest.size, past.size, stored)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", where, err)
		}
		if err := tlog.CheckTree(proof, newest.size, newest.root, past.size, past.root); err != nil {
			return 0, fmt.Errorf("%s: the first %d entries are another history: %w", where, past.size, err)
		}
		fmt.Fprintf(out, "%s: the log grew from its %d entries to %d\n", where, past.size, newest.size)
		if past.size > most {
			most = past.size
		}
	}
	if len(older) == 0 {
		fmt.Fprintln(out, "not proven: that nothing was truncated or rewritten (give -anchor with a head kept elsewhere)")
	} else if most < newest.size {
		fmt.Fprintf(out, "not proven: entries %d to %d, which no anchor covers\n", most, newest.size-1)
	}
	return most, nil
}
