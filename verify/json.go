package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxNesting is more than any entry may have; it keeps hostile bytes from using up the stack.
const maxNesting = 200

// maxInteger is the largest integer RFC 8785 allows as a number.
const maxInteger = 1<<53 - 1

// A JSON value is nil, bool, string, number, []interface{} or object.
type (
	object map[string]interface{}
	// number is a number as it is spelled. Only its one canonical spelling is accepted.
	number string
)

type parser struct {
	data  []byte
	place int
}

// parseCanonical reads JSON and compares it with its RFC 8785 form, byte by byte. encoding/json would not do: it matches
// names in any letter case, takes the last of duplicate names and repairs wrong UTF-8.
func parseCanonical(data []byte) (interface{}, error) {
	p := parser{data: data}
	value, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.place != len(data) {
		return nil, errors.New("bytes follow the JSON value")
	}
	if !bytes.Equal(canonical(value), data) {
		return nil, errors.New("bytes are not in canonical form")
	}
	return value, nil
}

func (p *parser) next() byte {
	if p.place >= len(p.data) {
		return 0
	}
	return p.data[p.place]
}

func (p *parser) take(wanted string) bool {
	if !bytes.HasPrefix(p.data[p.place:], []byte(wanted)) {
		return false
	}
	p.place += len(wanted)
	return true
}

func (p *parser) value(depth int) (interface{}, error) {
	if depth > maxNesting {
		return nil, errors.New("JSON is nested too deep")
	}
	switch c := p.next(); {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		return p.text()
	case c == '-' || '0' <= c && c <= '9':
		return p.number()
	case p.take("true"):
		return true, nil
	case p.take("false"):
		return false, nil
	case p.take("null"):
		return nil, nil
	}
	return nil, fmt.Errorf("no JSON value at byte %d", p.place)
}

func (p *parser) object(depth int) (interface{}, error) {
	members := object{}
	p.place++
	if p.take("}") {
		return members, nil
	}
	for {
		if p.next() != '"' {
			return nil, fmt.Errorf("no name at byte %d", p.place)
		}
		name, err := p.text()
		if err != nil {
			return nil, err
		}
		if _, twice := members[name]; twice {
			return nil, fmt.Errorf("the name %q appears twice", name)
		}
		if !p.take(":") {
			return nil, fmt.Errorf("no colon at byte %d", p.place)
		}
		if members[name], err = p.value(depth + 1); err != nil {
			return nil, err
		}
		if p.take("}") {
			return members, nil
		}
		if !p.take(",") {
			return nil, fmt.Errorf("no comma at byte %d", p.place)
		}
	}
}

func (p *parser) array(depth int) (interface{}, error) {
	list := []interface{}{}
	p.place++
	if p.take("]") {
		return list, nil
	}
	for {
		element, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, element)
		if p.take("]") {
			return list, nil
		}
		if !p.take(",") {
			return nil, fmt.Errorf("no comma at byte %d", p.place)
		}
	}
}

var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (p *parser) text() (string, error) {
	p.place++
	start := p.place
	var text []byte
	for p.place < len(p.data) {
		c := p.data[p.place]
		switch {
		case c == '"':
			text = append(text, p.data[start:p.place]...)
			p.place++
			if !utf8.Valid(text) {
				return "", errors.New("a text is not UTF-8")
			}
			return string(text), nil
		case c < 0x20:
			return "", fmt.Errorf("a control character at byte %d", p.place)
		case c == '\\':
			text = append(text, p.data[start:p.place]...)
			char, err := p.escaped()
			if err != nil {
				return "", err
			}
			text, start = append(text, string(char)...), p.place
		default:
			p.place++
		}
	}
	return "", errors.New("a text has no end")
}

func (p *parser) escaped() (rune, error) {
	p.place++
	c := p.next()
	p.place++
	if plain, known := escapes[c]; known {
		return rune(plain), nil
	}
	if c != 'u' {
		return 0, fmt.Errorf("no escape at byte %d", p.place)
	}
	first, err := p.unit()
	if err != nil || !utf16.IsSurrogate(first) {
		return first, err
	}
	if !p.take("\\u") {
		return 0, errors.New("half of a surrogate pair")
	}
	second, err := p.unit()
	if err != nil {
		return 0, err
	}
	if both := utf16.DecodeRune(first, second); both != utf8.RuneError {
		return both, nil
	}
	return 0, errors.New("half of a surrogate pair")
}

func (p *parser) unit() (rune, error) {
	if p.place+4 > len(p.data) {
		return 0, errors.New("a text has no end")
	}
	unit, err := strconv.ParseUint(string(p.data[p.place:p.place+4]), 16, 16)
	p.place += 4
	return rune(unit), err
}

func (p *parser) number() (interface{}, error) {
	start := p.place
	whole := true
	for ; p.place < len(p.data); p.place++ {
		switch c := p.data[p.place]; {
		case '0' <= c && c <= '9' || c == '-':
		case c == '.' || c == 'e' || c == 'E' || c == '+':
			whole = false
		default:
			return spelled(string(p.data[start:p.place]), whole)
		}
	}
	return spelled(string(p.data[start:p.place]), whole)
}

// spelled returns a number if it is spelled as RFC 8785 spells it: an integer below 2**53, or ECMAScript's shortest form.
func spelled(text string, whole bool) (interface{}, error) {
	again := ""
	if whole {
		value, err := strconv.ParseInt(text, 10, 64)
		if err != nil || value > maxInteger || value < -maxInteger {
			return nil, fmt.Errorf("%.40s is no integer of JSON", text)
		}
		again = strconv.FormatInt(value, 10)
	} else {
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%.40s is no number", text)
		}
		again = ecmaScript(value)
	}
	if again != text {
		return nil, fmt.Errorf("the number %.40s is not in canonical form", text)
	}
	return number(text), nil
}

// ecmaScript writes a float as ECMAScript's Number.prototype.toString does, which RFC 8785 prescribes.
func ecmaScript(value float64) string {
	if value == 0 {
		return "0"
	}
	if size := math.Abs(value); size >= 1e-6 && size < 1e21 {
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	text := strconv.FormatFloat(value, 'e', -1, 64)
	// Go writes exponents of two digits at least.
	if n := len(text); n >= 4 && text[n-4] == 'e' && text[n-2] == '0' {
		text = text[:n-2] + text[n-1:]
	}
	return text
}

// canonical writes a value in its RFC 8785 form.
func canonical(value interface{}) []byte {
	var out bytes.Buffer
	write(&out, value)
	return out.Bytes()
}

func write(out *bytes.Buffer, value interface{}) {
	switch value := value.(type) {
	case nil:
		out.WriteString("null")
	case bool:
		out.WriteString(strconv.FormatBool(value))
	case number:
		out.WriteString(string(value))
	case string:
		writeText(out, value)
	case []interface{}:
		out.WriteByte('[')
		for n, element := range value {
			if n > 0 {
				out.WriteByte(',')
			}
			write(out, element)
		}
		out.WriteByte(']')
	case object:
		out.WriteByte('{')
		for n, name := range inUTF16Order(value) {
			if n > 0 {
				out.WriteByte(',')
			}
			writeText(out, name)
			out.WriteByte(':')
			write(out, value[name])
		}
		out.WriteByte('}')
	}
}

func inUTF16Order(value object) []string {
	names := make([]string, 0, len(value))
	for name := range value {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool {
		if isASCII(names[i]) && isASCII(names[j]) {
			return names[i] < names[j]
		}
		a, b := utf16.Encode([]rune(names[i])), utf16.Encode([]rune(names[j]))
		for n := 0; n < len(a) && n < len(b); n++ {
			if a[n] != b[n] {
				return a[n] < b[n]
			}
		}
		return len(a) < len(b)
	})
	return names
}

func isASCII(text string) bool {
	for n := 0; n < len(text); n++ {
		if text[n] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func writeText(out *bytes.Buffer, text string) {
	out.WriteByte('"')
	start := 0
	for n := 0; n < len(text); n++ {
		c := text[n]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		out.WriteString(text[start:n])
		start = n + 1
		switch c {
		case '"', '\\':
			out.WriteByte('\\')
			out.WriteByte(c)
		case '\b':
			out.WriteString(`\b`)
		case '\f':
			out.WriteString(`\f`)
		case '\n':
			out.WriteString(`\n`)
		case '\r':
			out.WriteString(`\r`)
		case '\t':
			out.WriteString(`\t`)
		default:
			fmt.Fprintf(out, `\u%04x`, c)
		}
	}
	out.WriteString(text[start:])
	out.WriteByte('"')
}

// members returns an object if it has exactly the names wanted, those after "|" being optional.
func members(value interface{}, wanted ...string) (object, error) {
	fields, ok := value.(object)
	if !ok {
		return nil, errors.New("an object was expected")
	}
	count, optional := 0, false
	for _, name := range wanted {
		if name == "|" {
			optional = true
			continue
		}
		if _, there := fields[name]; there {
			count++
		} else if !optional {
			return nil, fmt.Errorf("%q is missing", name)
		}
	}
	if count != len(fields) {
		return nil, errors.New("an unknown name in an object")
	}
	return fields, nil
}
