package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

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

// follow returns the policy in force after an entry.
func follow(current *policy, one entry) (*policy, error) {
	said := one.said.Predicate
	if one.seq != 0 && said.Kind != "keys" {
		return current, nil
	}
	if said.Policy == nil && one.seq == 0 {
		return nil, errors.New("there is no policy of keys")
	}
	if said.Policy == nil {
		return nil, errors.New("changes keys and names none")
	}
	return said.Policy, nil
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
