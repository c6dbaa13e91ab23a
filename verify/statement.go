package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "urn:peergate:trail:"
	// maxDepth is how deep the body of an entry may be nested.
	maxDepth = 64
)

var (
	digestForm  = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	versionForm = regexp.MustCompile(`^[1-9][0-9]{0,8}$`)
	timeForm    = regexp.MustCompile(`^(0|[1-9][0-9]{0,18})$`)
)

// statement is what an entry says, after its form was checked.
type statement struct {
	kind     string
	key      string
	session  string
	seq      int64
	time     uint64
	prevRoot string
	body     object
	policy   *policy
}

// readStatement reads the signed bytes of an entry: exactly the members a statement has, each of its type, the subjects
// that follow from the body, and all of it in canonical form.
func readStatement(payload []byte) (statement, error) {
	var st statement
	value, err := parseCanonical(payload)
	if err != nil {
		return st, err
	}
	top, err := members(value, "_type", "predicate", "predicateType", "subject")
	if err != nil {
		return st, err
	}
	if top["_type"] != statementType {
		return st, errors.New("is no in-toto statement")
	}
	predicate, err := members(
		top["predicate"], "body", "key", "kind", "prev_root", "schema_version", "seq", "session", "time_ns", "|", "policy",
	)
	if err != nil {
		return st, err
	}
	var ok [6]bool
	st.body, ok[0] = predicate["body"].(object)
	st.key, ok[1] = predicate["key"].(string)
	st.kind, ok[2] = predicate["kind"].(string)
	st.prevRoot, ok[3] = predicate["prev_root"].(string)
	st.session, ok[4] = predicate["session"].(string)
	st.seq, ok[5] = wholeNumber(predicate["seq"])
	for _, valid := range ok {
		if !valid {
			return st, errors.New("a member of the predicate has another type")
		}
	}
	if predicate["schema_version"] != number("1") {
		return st, errors.New("is of another format")
	}
	if !digestForm.MatchString(st.prevRoot) {
		return st, errors.New("names no tree before it")
	}
	when, _ := predicate["time_ns"].(string)
	if st.time, err = strconv.ParseUint(when, 10, 64); err != nil || !timeForm.MatchString(when) {
		return st, errors.New("its time is no number of nanoseconds")
	}
	fullType, _ := top["predicateType"].(string)
	version := strings.TrimPrefix(fullType, predicateType+st.kind+":v")
	if version == fullType || !versionForm.MatchString(version) {
		return st, fmt.Errorf("its predicateType is not that of a %q entry", st.kind)
	}
	if top["subject"], err = subjects(st.prevRoot, st.body); err != nil {
		return st, err
	}
	if !bytes.Equal(canonical(top), payload) {
		return st, errors.New("its subjects are not the digests in its body")
	}
	if value, there := predicate["policy"]; there {
		if st.policy, err = readPolicy(value); err != nil {
			return st, fmt.Errorf("policy: %w", err)
		}
	}
	return st, nil
}

func wholeNumber(value interface{}) (int64, bool) {
	text, ok := value.(number)
	number, err := strconv.ParseInt(string(text), 10, 64)
	return number, ok && err == nil
}

// subjects returns what a statement is about: the tree before it, and every digest in its body under its path.
func subjects(prevRoot string, body object) ([]interface{}, error) {
	list := []interface{}{subject("trail", prevRoot)}
	var visit func(name string, value interface{}, depth int) error
	visit = func(name string, value interface{}, depth int) error {
		if depth > maxDepth {
			return fmt.Errorf("its body is nested deeper than %d levels", maxDepth)
		}
		switch value := value.(type) {
		case string:
			if digestForm.MatchString(value) {
				list = append(list, subject(name, value))
			}
		case []interface{}:
			for n, element := range value {
				if err := visit(fmt.Sprintf("%s.%d", name, n), element, depth+1); err != nil {
					return err
				}
			}
		case object:
			names := make([]string, 0, len(value))
			for key := range value {
				names = append(names, key)
			}
			sort.Strings(names)
			for _, key := range names {
				if err := visit(name+"."+key, value[key], depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err := visit("body", body, 0)
	return list, err
}

func subject(name, digest string) object {
	return object{"digest": object{"sha256": strings.TrimPrefix(digest, "sha256:")}, "name": name}
}

// evidenceTable is Peergate's own: specs/trail/stored_evidence.py says what its paths mean, and writes it.
//
//go:embed evidence.json
var evidenceTable []byte

var kinds = readTable()

// kindTable holds what is known of kinds of entries.
type kindTable struct {
	// AfterTheEnd lists the kinds that may follow the end of a session.
	AfterTheEnd []string `json:"after_the_end"`
	// Evidence lists, by kind, where an entry names files of the store.
	Evidence map[string][]string `json:"evidence"`
}

func (table kindTable) mayFollowTheEnd(kind string) bool {
	for _, allowed := range table.AfterTheEnd {
		if kind == allowed {
			return true
		}
	}
	return false
}

func readTable() kindTable {
	var table kindTable
	if err := json.Unmarshal(evidenceTable, &table); err != nil {
		panic(err)
	}
	return table
}

// evidence returns the digests of the files that an entry says are in the content store of its export, and those of
// them that are lists of further files.
func (st statement) evidence() (files, lists []string) {
	for _, path := range kinds.Evidence[st.kind] {
		isList := strings.HasSuffix(path, "/")
		path, condition, _ := strings.Cut(strings.TrimSuffix(path, "/"), "?")
		digests := digestsAt(st.body, strings.Split(path, "."), condition)
		files = append(files, digests...)
		if isList {
			lists = append(lists, digests...)
		}
	}
	return files, lists
}

// digestsAt returns the digests to which a path of the table leads.
func digestsAt(value interface{}, path []string, condition string) (digests []string) {
	if len(path) == 0 {
		if digest, ok := value.(string); ok && digestForm.MatchString(digest) {
			digests = append(digests, digest)
		}
		return digests
	}
	members, isObject := value.(object)
	if path[0] != "*" {
		member, there := members[path[0]]
		if there && (len(path) > 1 || condition == "" || members[condition] == true) {
			digests = digestsAt(member, path[1:], condition)
		}
		return digests
	}
	for _, member := range members {
		digests = append(digests, digestsAt(member, path[1:], condition)...)
	}
	if list, ok := value.([]interface{}); ok && !isObject {
		for _, member := range list {
			digests = append(digests, digestsAt(member, path[1:], condition)...)
		}
	}
	return digests
}
