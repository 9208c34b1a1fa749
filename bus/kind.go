package bus

import (
	"context"
	"errors"
)

// The kinds of a call's failure. errors.Is finds the kind of a call's error, and its text says more. A server gives an
// error its kind with WithKind. There are few kinds: those on which a caller may act.
var (
	// ErrNotFound says that the server doesn't have what the call is about.
	ErrNotFound = errors.New("not found")
	// ErrRefused says that the server understood the call and won't do it. It is also the kind of a server's error
	// without a kind, such as every error of a server of an earlier release.
	ErrRefused = errors.New("refused")
	// ErrInvalid says that the request makes no sense; the same request always fails.
	ErrInvalid = errors.New("invalid")
	// ErrBusy says that the server has too much to do at the moment; the same request may succeed later.
	ErrBusy = errors.New("busy")
	// ErrUnavailable says that no server was reached, or that it is stopping, or that it lacks what it needs to answer.
	ErrUnavailable = errors.New("unavailable")
)

// kinds are the kinds by their name in HeaderErrorKind. A name is never changed, only added.
var kinds = []struct {
	name string
	kind error
}{
	{"not-found", ErrNotFound},
	{"refused", ErrRefused},
	{"invalid", ErrInvalid},
	{"busy", ErrBusy},
	{"unavailable", ErrUnavailable},
}

// WithKind is err with a kind, one of those above. The text stays err's.
func WithKind(kind, err error) error { return &kindError{error: err, kind: kind} }

type kindError struct {
	error
	kind error
}

// Is reports whether target is the kind.
func (e *kindError) Is(target error) bool { return target == e.kind }

// Unwrap is the error without its kind.
func (e *kindError) Unwrap() error { return e.error }

// kindName is the name of the error's kind; ctx is the server's, which ends when that stops.
func kindName(ctx context.Context, err error) string {
	switch name := outermostKind(err); {
	case name != "":
		return name
	case ctx.Err() != nil:
		return "unavailable"
	}
	return "refused"
}

// outermostKind is the name of the first kind in err's tree, in the order of errors.Is, or "" if the tree has none. An
// outer kind is of the one who knows what the inner failure means for the call.
func outermostKind(err error) string {
	for err != nil {
		for _, k := range kinds {
			//nolint:errorlint // each error of the tree is looked at by itself
			if is, ok := err.(interface{ Is(target error) bool }); err == k.kind || ok && is.Is(k.kind) {
				return k.name
			}
		}
		switch inner := err.(type) { //nolint:errorlint // likewise
		case interface{ Unwrap() []error }:
			for _, each := range inner.Unwrap() {
				if name := outermostKind(each); name != "" {
					return name
				}
			}
			return ""
		case interface{ Unwrap() error }:
			err = inner.Unwrap()
		default:
			return ""
		}
	}
	return ""
}

// answered is the error that a server has answered with. A kind that this release doesn't know counts as refused.
func answered(text, name string) error {
	for _, k := range kinds {
		if k.name == name {
			return WithKind(k.kind, errors.New(text))
		}
	}
	return WithKind(ErrRefused, errors.New(text))
}
