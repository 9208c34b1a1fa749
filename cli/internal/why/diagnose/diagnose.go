package diagnose

import (
	"regexp"
	"strconv"
	"strings"
)

// Names are the objects that an error is about, as far as they are known.
type Names struct {
	Namespace, Pod, Container string
	// Image is the reference as in the spec, Volume the volume's name in the spec.
	Image, Volume string
}

// Finding is what is wrong.
type Finding struct {
	// Kind is a short name of the problem, such as image-not-found.
	Kind string
	// Why is the problem as a clause without a capital and a full stop.
	Why string
	// Waits is what has to happen before it goes on; empty if only the advice helps.
	Waits string
	// Do is a command, an edit of the spec, or who can help.
	Do string
}

// rule recognizes one problem. {1} and so on in the texts are the groups of the expression, {image} and so on the
// names.
type rule struct {
	kind, match    string
	why, waits, do string
}

// first is the finding of the first rule that knows the text. The expressions are compiled here and not at the start of
// the process, because one executable has the code of all daemons.
func first(rules []rule, text string, names Names) (Finding, bool) {
	for _, r := range rules {
		if m := regexp.MustCompile(r.match).FindStringSubmatch(text); m != nil {
			return r.finding(m, names), true
		}
	}
	return Finding{}, false
}

func (r rule) finding(groups []string, names Names) Finding {
	pairs := []string{
		"{ns}", names.Namespace, "{pod}", names.Pod, "{container}", names.Container, "{image}", names.Image,
		"{volume}", names.Volume, "{registry}", Registry(names.Image),
	}
	for i, group := range groups {
		pairs = append(pairs, "{"+strconv.Itoa(i)+"}", group)
	}
	fill := strings.NewReplacer(pairs...)
	why := strings.TrimRight(strings.ReplaceAll(fill.Replace(r.why), "  ", " "), ": ") // a group may be empty
	return Finding{Kind: r.kind, Why: why, Waits: fill.Replace(r.waits), Do: fill.Replace(r.do)}
}

// otherwise is the finding of the first rule that knows the text, or the text's innermost part.
func otherwise(rules []rule, text string, names Names, unknown Finding) Finding {
	text = unlogged(text)
	if f, ok := first(rules, text, names); ok {
		return f
	}
	unknown.Why = Innermost(text)
	return unknown
}

// Registry is the host of an image's registry.
func Registry(image string) string {
	host, _, ok := strings.Cut(image, "/")
	if ok && (strings.ContainsAny(host, ".:") || host == "localhost") {
		return host
	}
	return "docker.io"
}

// enough is how long an innermost part may be, in bytes, so that a sentence can be made with it.
const enough = 160

// wrapper is what calls put before the errors of others.
const wrapper = `^(?:rpc error: code = \w+ desc = |rpc error: |failed to pull and unpack image "[^"]*": ` +
	`|failed to resolve (?:reference|image) "?[^"\s]*"?: |failed to do request: |Error: |error processing PVC [^:]*: ` +
	`|failed to start sandbox "[^"]*": ` +
	`|failed to create containerd task: |failed to start containerd task "[^"]*": |failed to create shim task: ` +
	`|OCI runtime create failed: |runc create failed: |unable to start container process: ` +
	`|container create failed: |creating pod sandbox with name "[^"]*": ` +
	`|unable to pull image(?: or OCI artifact)?: |pull image err: |initializing source \S+: ` +
	`|error during container init: |failed to create container: |\w+\.\w+ failed for volume "[^"]*" : )+`

// unlogged takes the messages out of the lines of runc's log, which CRI-O's errors consist of.
func unlogged(text string) string {
	line := regexp.MustCompile(`time="[^"]*" level=\w+ msg=("(?:[^"\\]|\\.)*")\n?`)
	return line.ReplaceAllStringFunc(text, func(found string) string {
		message, err := strconv.Unquote(line.FindStringSubmatch(found)[1])
		if err != nil {
			return found
		}
		return message
	})
}

// Innermost is the part of a nested error that says most: what is left without the wrappers that are known, and if that
// is long, its last parts.
func Innermost(text string) string {
	text = strings.TrimSpace(unlogged(text))
	if rest := regexp.MustCompile(wrapper).ReplaceAllString(text, ""); rest != "" {
		text = rest
	}
	for len(text) > enough {
		_, rest, ok := strings.Cut(text, ": ")
		if !ok {
			break
		}
		text = rest
	}
	return text
}
