// Package source limits each key by a limit that is looked up in a database or an API.
package source
