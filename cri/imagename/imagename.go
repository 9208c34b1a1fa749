// Package imagename takes names of images apart by the rules of containers' clients, which are those of
// github.com/distribution/reference: the test holds it to that package. That one compiles 17 regular expressions at
// the start of each process that links it, which cost more memory than all pods' names (docs/adr/0015).
package imagename

import (
	"errors"
	"fmt"
	"strings"
)

const (
	defaultDomain = "docker.io"
	// olderDomain is what defaultDomain was called once.
	olderDomain = "index.docker.io"
	// official is where images are that defaultDomain knows by one word.
	official   = "library/"
	defaultTag = "latest"
	// maxPath is the longest path of a repository, maxTag the longest tag, minDigest the fewest hexadecimal digits of
	// a digest.
	maxPath   = 255
	maxTag    = 128
	minDigest = 32
)

// The reasons why a text is no name of an image. Their texts are known from the kubelet's Events.
var (
	errFormat          = errors.New("invalid reference format")
	errUppercase       = errors.New("repository name must be lowercase")
	errEmpty           = errors.New("repository name must have at least one component")
	errTooLong         = fmt.Errorf("repository name must not be more than %d characters", maxPath)
	errDigestFormat    = errors.New("invalid checksum digest format")
	errDigestLength    = errors.New("invalid checksum digest length")
	errDigestAlgorithm = errors.New("unsupported digest algorithm")
)

// Name is an image's name, taken apart.
type Name struct {
	// Repository is the name without tag and digest, such as docker.io/library/nginx.
	Repository string
	// Tag and Digest, such as sha256:0123..., are empty where the name has none.
	Tag, Digest string
}

// String is the name as it was parsed.
func (n Name) String() string {
	text := n.Repository
	if n.Tag != "" {
		text += ":" + n.Tag
	}
	if n.Digest != "" {
		text += "@" + n.Digest
	}
	return text
}

// Exact is the name as runtimes list images: with its digest alone, or with its tag, which is latest unless said.
func (n Name) Exact() Name {
	switch {
	case n.Digest != "":
		n.Tag = ""
	case n.Tag == "":
		n.Tag = defaultTag
	}
	return n
}

// Parse takes a name apart and qualifies nothing.
func Parse(text string) (Name, error) {
	n, path, ok := split(text)
	switch {
	case !ok && text == "":
		return Name{}, errEmpty
	case !ok:
		if _, _, ok := split(strings.ToLower(text)); ok {
			return Name{}, errUppercase
		}
		return Name{}, errFormat
	case len(path) > maxPath:
		return Name{}, errTooLong
	case n.Digest != "":
		if err := checkDigest(n.Digest); err != nil {
			return Name{}, err
		}
	}
	return n, nil
}

// ParseQualified takes a name apart and adds the registry that clients of containers add to a short one: nginx is
// docker.io/library/nginx.
func ParseQualified(text string) (Name, error) {
	if len(text) == 64 && all(text, lowerHex) {
		return Name{}, fmt.Errorf("invalid repository name (%s), cannot specify 64-byte hexadecimal strings", text)
	}
	domain, path := qualify(text)
	remote, _, _ := strings.Cut(path, ":")
	if strings.ToLower(remote) != remote {
		return Name{}, fmt.Errorf("invalid reference format: repository name (%s) must be lowercase", remote)
	}
	return Parse(domain + "/" + path)
}

func qualify(text string) (domain, path string) {
	first, rest, ok := strings.Cut(text, "/")
	switch {
	case !ok:
		return defaultDomain, official + text
	case first == olderDomain:
		domain, path = defaultDomain, rest
	case first == "localhost", strings.ContainsAny(first, ".:"), strings.ToLower(first) != first:
		domain, path = first, rest
	default:
		domain, path = defaultDomain, text
	}
	if domain == defaultDomain && !strings.Contains(path, "/") {
		path = official + path
	}
	return domain, path
}

// split reports whether the text has the form of a name; path is its repository without the registry.
func split(text string) (n Name, path string, ok bool) {
	rest, digest, digested := strings.Cut(text, "@")
	n.Repository, n.Digest = rest, digest
	if digested && !isDigest(digest) {
		return n, "", false
	}
	if colon := strings.LastIndexByte(rest, ':'); colon > strings.LastIndexByte(rest, '/') {
		n.Repository, n.Tag = rest[:colon], rest[colon+1:]
		if !isTag(n.Tag) {
			return n, "", false
		}
	}
	path = n.Repository
	if domain, below, ok := strings.Cut(path, "/"); ok && isDomain(domain) {
		path = below
	}
	return n, path, isPath(path)
}

// isDomain reports whether the text is a host with or without a port.
func isDomain(text string) bool {
	host := text
	if colon := strings.LastIndexByte(text, ':'); colon > strings.LastIndexByte(text, ']') {
		host = text[:colon]
		if port := text[colon+1:]; port == "" || !all(port, digit) {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && inner != "" && all(inner, func(c byte) bool { return hex(c) || c == ':' })
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' || !all(label, alphanumericOrDash) {
			return false
		}
	}
	return true
}

// isPath reports whether each component is words of small letters and digits with a separator between them: a dot, one
// or two underscores, or dashes.
func isPath(text string) bool {
	for component := range strings.SplitSeq(text, "/") {
		for {
			after := strings.TrimLeftFunc(component, lowerOrDigit)
			if len(after) == len(component) {
				return false // no word where one must be
			}
			if after == "" {
				break
			}
			component = strings.TrimLeft(after, "-._")
			switch separator := after[:len(after)-len(component)]; {
			case separator == ".", separator == "_", separator == "__":
			case separator == "" || strings.Trim(separator, "-") != "":
				return false
			}
		}
	}
	return true
}

func isTag(text string) bool {
	inner := func(c byte) bool { return word(c) || c == '.' || c == '-' }
	return text != "" && len(text) <= maxTag && word(text[0]) && all(text, inner)
}

// isDigest reports whether the text has the form of a digest, of whatever algorithm.
func isDigest(text string) bool {
	algorithm, encoded, _ := strings.Cut(text, ":")
	if len(encoded) < minDigest || !all(encoded, hex) {
		return false
	}
	for part := range strings.FieldsFuncSeq(algorithm, func(r rune) bool { return strings.ContainsRune("-_+.", r) }) {
		if !letter(part[0]) || !all(part, alphanumeric) {
			return false
		}
	}
	separated := func(c byte) bool { return !alphanumeric(c) }
	for i := range len(algorithm) {
		if separated(algorithm[i]) && (i == 0 || i == len(algorithm)-1 || separated(algorithm[i+1])) {
			return false
		}
	}
	return algorithm != ""
}

// checkDigest checks a text of a digest's form for an algorithm that is known, and for as many digits as that has.
func checkDigest(text string) error {
	algorithm, encoded, _ := strings.Cut(text, ":")
	digits, known := map[string]int{"sha256": 64, "sha384": 96, "sha512": 128}[algorithm]
	switch {
	case !known && strings.ToLower(algorithm) != algorithm:
		return errDigestFormat
	case !known:
		return errDigestAlgorithm
	case len(encoded) != digits:
		return errDigestLength
	case !all(encoded, lowerHex):
		return errDigestFormat
	}
	return nil
}

func all(text string, is func(byte) bool) bool {
	for i := range len(text) {
		if !is(text[i]) {
			return false
		}
	}
	return true
}

func digit(c byte) bool              { return '0' <= c && c <= '9' }
func letter(c byte) bool             { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func alphanumeric(c byte) bool       { return digit(c) || letter(c) }
func word(c byte) bool               { return alphanumeric(c) || c == '_' }
func alphanumericOrDash(c byte) bool { return alphanumeric(c) || c == '-' }
func lowerHex(c byte) bool           { return digit(c) || 'a' <= c && c <= 'f' }
func hex(c byte) bool                { return lowerHex(c) || 'A' <= c && c <= 'F' }
func lowerOrDigit(r rune) bool       { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' }
