package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/tlog"
)

// maxNoteBytes is the longest note that is read.
const maxNoteBytes = 1_000_000

// head is a checkpoint note taken apart, before its signatures were checked.
type head struct {
	origin     string
	size       int64
	root       tlog.Hash
	text       string // what is signed
	signatures []noteSignature
}

type noteSignature struct {
	name string
	hash uint32
	data []byte
}

var sizeForm = regexp.MustCompile(`^(0|[1-9][0-9]{0,18})$`)

// parseHead reads a checkpoint note in the one form that is allowed: the name of the log, its size, its root, an empty
// line, and signature lines. note.Open is not used: it accepts other spellings of base64.
func parseHead(data []byte) (head, error) {
	var parsed head
	malformed := errors.New("is no checkpoint note")
	if len(data) > maxNoteBytes || !utf8.Valid(data) {
		return parsed, malformed
	}
	for _, c := range data {
		if c < 0x20 && c != '\n' {
			return parsed, malformed
		}
	}
	split := bytes.LastIndex(data, []byte("\n\n"))
	if split < 0 || data[len(data)-1] != '\n' || split+2 == len(data) {
		return parsed, malformed
	}
	parsed.text = string(data[:split+1])
	lines := strings.Split(string(data[:split]), "\n")
	if len(lines) != 3 || lines[0] == "" || !sizeForm.MatchString(lines[1]) {
		return parsed, malformed
	}
	parsed.origin = lines[0]
	size, err := strconv.ParseInt(lines[1], 10, 64)
	root, ok := decoded(lines[2])
	if err != nil || !ok || len(root) != len(parsed.root) {
		return parsed, malformed
	}
	parsed.size = size
	copy(parsed.root[:], root)
	for _, line := range strings.Split(string(data[split+2:len(data)-1]), "\n") {
		parts := strings.SplitN(line, " ", 3)
		if len(parts) != 3 || parts[0] != "\u2014" || !isName(parts[1]) {
			return parsed, malformed
		}
		signed, ok := decoded(parts[2])
		if !ok || len(signed) < 5 {
			return parsed, malformed
		}
		hash := uint32(signed[0])<<24 | uint32(signed[1])<<16 | uint32(signed[2])<<8 | uint32(signed[3])
		parsed.signatures = append(parsed.signatures, noteSignature{parts[1], hash, signed[4:]})
	}
	return parsed, nil
}

func isName(name string) bool {
	return name != "" && !strings.Contains(name, "+") && strings.IndexFunc(name, unicode.IsSpace) < 0
}

// decoded returns the bytes of standard base64 in its one canonical spelling.
func decoded(text string) ([]byte, bool) {
	data, err := base64.StdEncoding.DecodeString(text)
	return data, err == nil && base64.StdEncoding.EncodeToString(data) == text
}
