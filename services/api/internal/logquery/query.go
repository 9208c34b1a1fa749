package logquery

import (
	"fmt"
	"io/fs"
	"net/url"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxTailLines  = 100000
	maxNameLength = 256
	maxServices   = 4
)

// unsafe is what no name of a systemd unit has.
var unsafe = regexp.MustCompile(`[^a-zA-Z\-_.:0-9@]+`)

// Query is what is asked for.
type Query struct {
	// Services are units of systemd without .service, or names of logs. Files are paths below the directory of logs.
	Services, Files []string
	Options
}

// Options narrow down what services have logged.
type Options struct {
	Since, Until    *time.Time
	TailLines, Boot *int
	// Pattern is a regular expression of PCRE2.
	Pattern string
}

// Parse reads the query of a URL; nil means that it has none.
func Parse(values url.Values) (*Query, field.ErrorList) {
	q := &Query{}
	var errs field.ErrorList
	names, given := values["query"]
	for _, name := range names {
		switch {
		case strings.ContainsAny(name, `/\`):
			q.Files = append(q.Files, name)
		case strings.TrimSpace(name) != "":
			q.Services = append(q.Services, name)
		}
	}
	if given && len(q.Files)+len(q.Services) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("query"), names, "may not be empty"))
	}
	q.Since = parse(values, "sinceTime", moment, &errs)
	q.Until = parse(values, "untilTime", moment, &errs)
	q.Boot = parse(values, "boot", strconv.Atoi, &errs)
	q.TailLines = parse(values, "tailLines", strconv.Atoi, &errs)
	q.Pattern = values.Get("pattern")
	if len(errs) > 0 || len(q.Files)+len(q.Services) == 0 && q.Options == (Options{}) {
		return nil, errs
	}
	return q, nil
}

func moment(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("invalid time format")
	}
	return at, nil
}

// parse reads one parameter; nil where it isn't given, or wrong.
func parse[T any](values url.Values, name string, read func(string) (T, error), errs *field.ErrorList) *T {
	text := values.Get(name)
	if text == "" {
		return nil
	}
	value, err := read(text)
	if err != nil {
		*errs = append(*errs, field.Invalid(field.NewPath(name), text, err.Error()))
		return nil
	}
	return &value
}

// Validate checks a query against the files that there are.
func (q *Query) Validate(files fs.FS) field.ErrorList {
	errs := q.validateNames(files)
	if q.Since != nil && q.Until != nil && q.Since.After(*q.Until) {
		errs = append(errs, field.Invalid(field.NewPath("untilTime"), q.Until, "must be after `sinceTime`"))
	}
	if q.Boot != nil && *q.Boot > 0 {
		errs = append(errs, field.Invalid(field.NewPath("boot"), *q.Boot, "must be less than 1"))
	}
	if q.TailLines != nil {
		for _, problem := range utilvalidation.IsInRange(*q.TailLines, 0, maxTailLines) {
			errs = append(errs, field.Invalid(field.NewPath("tailLines"), *q.TailLines, problem))
		}
	}
	if _, err := syntax.Parse(q.Pattern, syntax.Perl); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("pattern"), q.Pattern, err.Error()))
	}
	if strings.ContainsRune(q.Pattern, 0) {
		errs = append(errs, field.Invalid(field.NewPath("pattern"), q.Pattern, "input contains unsupported characters"))
	}
	return errs
}

func (q *Query) validateNames(files fs.FS) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("query")
	for _, name := range q.Services {
		switch {
		case len(name) > maxNameLength:
			errs = append(errs, field.Invalid(path, name, fmt.Sprintf("length must be less than %d", maxNameLength)))
		case unsafe.MatchString(name):
			errs = append(errs, field.Invalid(path, name, "input contains unsupported characters"))
		}
	}
	if len(q.Services) > maxServices {
		errs = append(errs, field.TooMany(path, len(q.Services), maxServices))
	}
	switch {
	case len(q.Files)+len(q.Services) == 0:
		errs = append(errs, field.Required(path, "cannot be empty with options"))
	case len(q.Files) > 0 && len(q.Services) > 0:
		errs = append(errs, field.Invalid(path, fmt.Sprintf("%v, %v", q.Files, q.Services),
			"cannot specify a file and service"))
	case len(q.Files) > 1:
		errs = append(errs, field.Invalid(path, q.Files, "cannot specify more than one file"))
	case len(q.Files) == 1 && q.Options != (Options{}):
		errs = append(errs, field.Invalid(path, q.Files, "cannot specify file with options"))
	case len(q.Files) == 1:
		if _, err := fs.Stat(files, q.File()); err != nil {
			errs = append(errs, field.Invalid(path, q.Files, err.Error()))
		}
	}
	return errs
}

// File is the one file that is asked for, as a path below the directory of logs; empty where services are.
func (q *Query) File() string {
	if len(q.Files) != 1 {
		return ""
	}
	return strings.TrimPrefix(strings.ReplaceAll(q.Files[0], `\`, "/"), "/")
}
