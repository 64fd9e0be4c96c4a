"""XMP metadata in files beside photos, or in the photos themselves, through exiftool."""
