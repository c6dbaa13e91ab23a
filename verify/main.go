// Verify checks an exported trail without Peergate: the signed head, the tree over all entries, every entry's own
// signature, every proof, and that the log grew from heads that were kept elsewhere.
//
//	verify [-tree] [-anchor NOTE]... EXPORT
//
// Every signature is checked alone by crypto/ed25519, or with the build tag batch many of them at once (batch.go).
//
// It shares no code with Peergate. The tree is checked by golang.org/x/mod/sumdb/tlog and the head by
// golang.org/x/mod/sumdb/note; entries are read as DSSE envelopes and in-toto statements with the standard library.
//
// Exit codes: 0 everything holds, 1 something does not, 3 the export cannot be read.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

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
	stored, err := checkTree(dir, size, head)
	if err != nil {
		fail(err)
	}
	fmt.Printf("tree: the root follows from the %d entries, and every tile is right\n", size)
	if *treeOnly {
		fmt.Println("not checked: the signatures of the entries themselves")
	} else {
		signed, err := checkEntries(dir, size, stored)
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
