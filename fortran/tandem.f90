! Tandem in Fortran 2008: models that a program trains and asks. docs/simulation.md is the guide.
!
!   call tandem_train(model, tandem_array(x), tandem_array(y), loss)
!   call tandem_predict(model, tandem_array(x), y)
!
! tandem_array() describes an array where it is, also a section with strides, with its dimensions reversed: x(nx, ny, c, nb)
! is [nb, c, ny, nx], so that the LAST dimension is the batch. Nothing is transposed or kept. Arrays that are written are
! arguments themselves, or described ones with the attribute TARGET.
!
! Without the argument `status` an error ends the program with the library's message (error stop 1). With it the program
! goes on: 0 is success, tandem_message() the message. Objects are freed by tandem_free(), which may be called twice.
module tandem
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: real32, real64, int32, int64, error_unit
  implicit none
  private
  public :: tandem_array, tandem_array_t, tandem_group_t, tandem_model_t
  public :: tandem_group, tandem_group_rank, tandem_model, tandem_load, tandem_save, tandem_free
  public :: tandem_observe, tandem_train, tandem_evaluate, tandem_predict, tandem_backward
  public :: tandem_get, tandem_set, tandem_read, tandem_write
  public :: tandem_message, tandem_status_name, tandem_version, tandem_seed, tandem_threads

  integer, parameter, public :: tandem_ok = 0, tandem_invalid_argument = 1, tandem_not_found = 2, &
    tandem_already_exists = 3, tandem_resource_exhausted = 4, tandem_failed_precondition = 5, tandem_out_of_range = 6, &
    tandem_deadline_exceeded = 7, tandem_unavailable = 8, tandem_aborted = 9, tandem_data_loss = 10, &
    tandem_unimplemented = 11, tandem_runtime = 12, tandem_internal = 13
  integer(c_int32_t), parameter :: float32 = 1, float64 = 2, i32 = 3, i64 = 4  ! dtypes of tandem_c.h

  type, bind(c) :: tandem_array_t
    type(c_ptr) :: data = c_null_ptr
    integer(c_int32_t) :: dtype = 0, rank = 0
    integer(c_int64_t) :: dims(8) = 0, strides(8) = 0
  end type
  type :: tandem_group_t
    private
    type(c_ptr) :: p = c_null_ptr
  end type
  type :: tandem_model_t
    private
    type(c_ptr) :: p = c_null_ptr
  end type

  interface tandem_array
    module procedure &
      array_real32_1, array_real32_2, array_real32_3, array_real32_4, array_real32_5, &
      array_real64_1, array_real64_2, array_real64_3, array_real64_4, array_real64_5, &
      array_int32_1, array_int32_2, array_int32_3, array_int32_4, array_int32_5, &
      array_int64_1, array_int64_2, array_int64_3, array_int64_4, array_int64_5
  end interface
  interface tandem_predict
    module procedure predict_array, &
      predict_real32_1, predict_real32_2, predict_real32_3, predict_real32_4, predict_real32_5, &
      predict_real64_1, predict_real64_2, predict_real64_3, predict_real64_4, predict_real64_5
  end interface
  interface tandem_free
    module procedure free_group, free_model
  end interface

  interface
    integer(c_int32_t) function tandem_group_from_fortran(comm, p) bind(c)
      import; integer(c_int), value :: comm; type(c_ptr) :: p
    end function
    integer(c_int32_t) function c_group_rank(p, rank, ranks) bind(c, name="tandem_group_rank")
      import; type(c_ptr), value :: p; integer(c_int32_t), intent(out) :: rank, ranks
    end function
    integer(c_int32_t) function c_group_free(p) bind(c, name="tandem_group_free")
      import; type(c_ptr), value :: p
    end function
    integer(c_int32_t) function c_model_create(definition, group, p) bind(c, name="tandem_model_create")
      import; character(kind=c_char), intent(in) :: definition(*); type(c_ptr), value :: group; type(c_ptr) :: p
    end function
    integer(c_int32_t) function c_model_load(path, group, p) bind(c, name="tandem_model_load")
      import; character(kind=c_char), intent(in) :: path(*); type(c_ptr), value :: group; type(c_ptr) :: p
    end function
    integer(c_int32_t) function c_model_save(p, path) bind(c, name="tandem_model_save")
      import; type(c_ptr), value :: p; character(kind=c_char), intent(in) :: path(*)
    end function
    integer(c_int32_t) function c_model_free(p) bind(c, name="tandem_model_free")
      import; type(c_ptr), value :: p
    end function
    integer(c_int32_t) function c_model_get(p, name, number) bind(c, name="tandem_model_get")
      import; type(c_ptr), value :: p; character(kind=c_char), intent(in) :: name(*); real(c_double), intent(out) :: number
    end function
    integer(c_int32_t) function c_model_set(p, name, number) bind(c, name="tandem_model_set")
      import; type(c_ptr), value :: p; character(kind=c_char), intent(in) :: name(*); real(c_double), value :: number
    end function
    integer(c_int32_t) function c_model_read(p, weight, to) bind(c, name="tandem_model_read")
      import; type(c_ptr), value :: p; character(kind=c_char), intent(in) :: weight(*); type(tandem_array_t), intent(in) :: to
    end function
    integer(c_int32_t) function c_model_write(p, weight, from) bind(c, name="tandem_model_write")
      import; type(c_ptr), value :: p; character(kind=c_char), intent(in) :: weight(*); type(tandem_array_t), intent(in) :: from
    end function
    integer(c_int32_t) function c_model_observe(p, x, y) bind(c, name="tandem_model_observe")
      import; type(c_ptr), value :: p; type(tandem_array_t), intent(in) :: x, y
    end function
    integer(c_int32_t) function c_train(p, x, y, weight, loss) bind(c, name="tandem_train")
      import; type(c_ptr), value :: p, weight; type(tandem_array_t), intent(in) :: x, y; real(c_double), intent(out) :: loss
    end function
    integer(c_int32_t) function c_evaluate(p, x, y, loss) bind(c, name="tandem_evaluate")
      import; type(c_ptr), value :: p; type(tandem_array_t), intent(in) :: x, y; real(c_double), intent(out) :: loss
    end function
    integer(c_int32_t) function c_predict(p, x, y) bind(c, name="tandem_predict")
      import; type(c_ptr), value :: p; type(tandem_array_t), intent(in) :: x, y
    end function
    integer(c_int32_t) function c_backward(p, x, dy, train, dx) bind(c, name="tandem_backward")
      import; type(c_ptr), value :: p, dx; type(tandem_array_t), intent(in) :: x, dy; integer(c_int32_t), value :: train
    end function
    integer(c_int32_t) function c_set_seed(seed) bind(c, name="tandem_set_seed")
      import; integer(c_int64_t), value :: seed
    end function
    integer(c_int32_t) function c_set_threads(threads) bind(c, name="tandem_set_threads")
      import; integer(c_int32_t), value :: threads
    end function
    function c_api() bind(c, name="tandem_c_api") result(version)
      import; integer(c_int32_t) :: version
    end function
    function c_last_error() bind(c, name="tandem_last_error") result(text)
      import; type(c_ptr) :: text
    end function
    function c_version() bind(c, name="tandem_version") result(text)
      import; type(c_ptr) :: text
    end function
    function c_status_name(status) bind(c, name="tandem_status_name") result(text)
      import; integer(c_int32_t), value :: status; type(c_ptr) :: text
    end function
    function c_strlen(text) bind(c, name="strlen") result(length)
      import; type(c_ptr), value :: text; integer(c_size_t) :: length
    end function
  end interface

contains

  ! --- messages and settings ---

  function string_of(text) result(string)
    type(c_ptr), intent(in) :: text
    character(:), allocatable :: string
    character(kind=c_char), pointer :: c(:)
    integer :: i
    call c_f_pointer(text, c, [c_strlen(text)])
    allocate (character(size(c)) :: string)
    do i = 1, size(c)
      string(i:i) = c(i)
    end do
  end function
  function tandem_message() result(message)  ! of this thread's last call; empty after success
    character(:), allocatable :: message
    message = string_of(c_last_error())
  end function
  function tandem_status_name(status) result(name)
    integer, intent(in) :: status
    character(:), allocatable :: name
    name = string_of(c_status_name(int(status, c_int32_t)))
  end function
  function tandem_version() result(version)
    character(:), allocatable :: version
    version = string_of(c_version())
  end function
  subroutine finish(code, status)
    integer(c_int32_t), intent(in) :: code
    integer, intent(out), optional :: status
    if (present(status)) then
      status = code
    else if (code /= tandem_ok) then
      write (error_unit, '(4a)') 'tandem: ', tandem_status_name(int(code)), ': ', tandem_message()
      error stop 1
    end if
  end subroutine
  subroutine tandem_seed(seed, status)
    integer, intent(in) :: seed
    integer, intent(out), optional :: status
    call finish(c_set_seed(int(seed, c_int64_t)), status)
  end subroutine
  subroutine tandem_threads(threads, status)  ! of this rank; 0: its share of the cores
    integer, intent(in) :: threads
    integer, intent(out), optional :: status
    call finish(c_set_threads(int(threads, c_int32_t)), status)
  end subroutine

  ! --- groups and models ---

  subroutine tandem_group(group, comm, status)  ! collective over comm; with mpi_f08 pass comm%mpi_val
    type(tandem_group_t), intent(out) :: group
    integer, intent(in) :: comm
    integer, intent(out), optional :: status
    call require_library()
    call finish(tandem_group_from_fortran(int(comm, c_int), group%p), status)
  end subroutine
  subroutine tandem_group_rank(group, rank, ranks, status)
    type(tandem_group_t), intent(in) :: group
    integer, intent(out) :: rank, ranks
    integer, intent(out), optional :: status
    integer(c_int32_t) :: r, n
    r = -1; n = 0
    call finish(c_group_rank(group%p, r, n), status)
    rank = r; ranks = n
  end subroutine
  subroutine tandem_model(model, definition, group, status)  ! of JSON text; collective with a group
    type(tandem_model_t), intent(out) :: model
    character(*), intent(in) :: definition
    type(tandem_group_t), intent(in), optional :: group
    integer, intent(out), optional :: status
    call require_library()
    call finish(c_model_create(trim(definition) // c_null_char, pointer_of(group), model%p), status)
  end subroutine
  subroutine tandem_load(model, path, group, status)  ! what tandem_save() has written; collective with a group
    type(tandem_model_t), intent(out) :: model
    character(*), intent(in) :: path
    type(tandem_group_t), intent(in), optional :: group
    integer, intent(out), optional :: status
    call require_library()
    call finish(c_model_load(trim(path) // c_null_char, pointer_of(group), model%p), status)
  end subroutine
  subroutine tandem_save(model, path, status)  ! not collective
    type(tandem_model_t), intent(in) :: model
    character(*), intent(in) :: path
    integer, intent(out), optional :: status
    call finish(c_model_save(model%p, trim(path) // c_null_char), status)
  end subroutine
  function pointer_of(group) result(p)
    type(tandem_group_t), intent(in), optional :: group
    type(c_ptr) :: p
    p = c_null_ptr
    if (present(group)) p = group%p
  end function
  subroutine require_library()  ! the module needs the functions of version 1 of tandem_c.h
    if (c_api() < 1) error stop 'tandem: the library is older than the module tandem'
  end subroutine
  subroutine free_group(group)
    type(tandem_group_t), intent(inout) :: group
    call finish(c_group_free(group%p))
    group%p = c_null_ptr
  end subroutine
  subroutine free_model(model)
    type(tandem_model_t), intent(inout) :: model
    call finish(c_model_free(model%p))
    model%p = c_null_ptr
  end subroutine

  subroutine tandem_get(model, name, number, status)
    type(tandem_model_t), intent(in) :: model
    character(*), intent(in) :: name
    real(real64), intent(out) :: number
    integer, intent(out), optional :: status
    number = 0
    call finish(c_model_get(model%p, trim(name) // c_null_char, number), status)
  end subroutine
  subroutine tandem_set(model, name, number, status)
    type(tandem_model_t), intent(in) :: model
    character(*), intent(in) :: name
    real(real64), intent(in) :: number
    integer, intent(out), optional :: status
    call finish(c_model_set(model%p, trim(name) // c_null_char, number), status)
  end subroutine
  subroutine tandem_read(model, weight, to, status)  ! `to` describes an array with TARGET
    type(tandem_model_t), intent(in) :: model
    character(*), intent(in) :: weight
    type(tandem_array_t), intent(in) :: to
    integer, intent(out), optional :: status
    call finish(c_model_read(model%p, trim(weight) // c_null_char, to), status)
  end subroutine
  subroutine tandem_write(model, weight, from, status)
    type(tandem_model_t), intent(in) :: model
    character(*), intent(in) :: weight
    type(tandem_array_t), intent(in) :: from
    integer, intent(out), optional :: status
    call finish(c_model_write(model%p, trim(weight) // c_null_char, from), status)
  end subroutine

  ! --- training and predictions ---

  subroutine tandem_observe(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x, y
    integer, intent(out), optional :: status
    call finish(c_model_observe(model%p, x, y), status)
  end subroutine
  subroutine tandem_train(model, x, y, loss, weight, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x, y
    real(real64), intent(out), optional :: loss
    type(tandem_array_t), intent(in), optional, target :: weight  ! one number per example
    integer, intent(out), optional :: status
    real(real64) :: mean
    type(c_ptr) :: weights
    mean = 0
    weights = c_null_ptr
    if (present(weight)) weights = c_loc(weight)
    call finish(c_train(model%p, x, y, weights, mean), status)
    if (present(loss)) loss = mean
  end subroutine
  subroutine tandem_evaluate(model, x, y, loss, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x, y
    real(real64), intent(out) :: loss
    integer, intent(out), optional :: status
    loss = 0
    call finish(c_evaluate(model%p, x, y, loss), status)
  end subroutine
  subroutine tandem_backward(model, x, dy, train, dx, status)  ! `dx` describes an array with TARGET
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x, dy
    logical, intent(in) :: train
    type(tandem_array_t), intent(in), optional, target :: dx
    integer, intent(out), optional :: status
    type(c_ptr) :: gradient
    gradient = c_null_ptr
    if (present(dx)) gradient = c_loc(dx)
    call finish(c_backward(model%p, x, dy, merge(1_c_int32_t, 0_c_int32_t, train), gradient), status)
  end subroutine
  subroutine predict_array(model, x, y, status)  ! `y` describes an array with TARGET
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x, y
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, y), status)
  end subroutine
  subroutine predict_real32_1(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real32), intent(inout), target :: y(:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real32_2(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real32), intent(inout), target :: y(:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real32_3(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real32), intent(inout), target :: y(:,:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real32_4(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real32), intent(inout), target :: y(:,:,:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real32_5(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real32), intent(inout), target :: y(:,:,:,:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real64_1(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real64), intent(inout), target :: y(:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real64_2(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real64), intent(inout), target :: y(:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real64_3(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real64), intent(inout), target :: y(:,:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real64_4(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real64), intent(inout), target :: y(:,:,:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine
  subroutine predict_real64_5(model, x, y, status)
    type(tandem_model_t), intent(in) :: model
    type(tandem_array_t), intent(in) :: x
    real(real64), intent(inout), target :: y(:,:,:,:,:)
    integer, intent(out), optional :: status
    call finish(c_predict(model%p, x, tandem_array(y)), status)
  end subroutine

  ! --- arrays ---

  subroutine describe(a, dtype, extents, p)
    type(tandem_array_t), intent(out) :: a
    integer(c_int32_t), intent(in) :: dtype
    integer(int64), intent(in) :: extents(:)
    type(c_ptr), intent(in) :: p
    a%dtype = dtype
    a%rank = size(extents)
    a%dims(1:a%rank) = extents(a%rank:1:-1)
    a%strides(1:a%rank) = 0
    a%data = p
  end subroutine
  ! `next` is the element after the first one along dimension k.
  subroutine stride(a, k, next, bytes)
    type(tandem_array_t), intent(inout) :: a
    integer, intent(in) :: k, bytes
    type(c_ptr), intent(in) :: next
    a%strides(a%rank + 1 - k) = (transfer(next, 0_c_intptr_t) - transfer(a%data, 0_c_intptr_t)) / bytes
  end subroutine
  subroutine fill(a)  ! a dimension of one element has any stride but 0, which would mean packed
    type(tandem_array_t), intent(inout) :: a
    where (a%strides(1:a%rank) == 0) a%strides(1:a%rank) = 1
  end subroutine

  type(tandem_array_t) function array_real32_1(x) result(a)
    real(real32), intent(in), target :: x(:)
    call describe(a, float32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real32_2(x) result(a)
    real(real32), intent(in), target :: x(:,:)
    call describe(a, float32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real32_3(x) result(a)
    real(real32), intent(in), target :: x(:,:,:)
    call describe(a, float32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real32_4(x) result(a)
    real(real32), intent(in), target :: x(:,:,:,:)
    call describe(a, float32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real32_5(x) result(a)
    real(real32), intent(in), target :: x(:,:,:,:,:)
    call describe(a, float32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2,1)), storage_size(x)/8)
    if (size(x,5) > 1) call stride(a, 5, c_loc(x(1,1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real64_1(x) result(a)
    real(real64), intent(in), target :: x(:)
    call describe(a, float64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real64_2(x) result(a)
    real(real64), intent(in), target :: x(:,:)
    call describe(a, float64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real64_3(x) result(a)
    real(real64), intent(in), target :: x(:,:,:)
    call describe(a, float64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real64_4(x) result(a)
    real(real64), intent(in), target :: x(:,:,:,:)
    call describe(a, float64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_real64_5(x) result(a)
    real(real64), intent(in), target :: x(:,:,:,:,:)
    call describe(a, float64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2,1)), storage_size(x)/8)
    if (size(x,5) > 1) call stride(a, 5, c_loc(x(1,1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int32_1(x) result(a)
    integer(int32), intent(in), target :: x(:)
    call describe(a, i32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int32_2(x) result(a)
    integer(int32), intent(in), target :: x(:,:)
    call describe(a, i32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int32_3(x) result(a)
    integer(int32), intent(in), target :: x(:,:,:)
    call describe(a, i32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int32_4(x) result(a)
    integer(int32), intent(in), target :: x(:,:,:,:)
    call describe(a, i32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int32_5(x) result(a)
    integer(int32), intent(in), target :: x(:,:,:,:,:)
    call describe(a, i32, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2,1)), storage_size(x)/8)
    if (size(x,5) > 1) call stride(a, 5, c_loc(x(1,1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int64_1(x) result(a)
    integer(int64), intent(in), target :: x(:)
    call describe(a, i64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int64_2(x) result(a)
    integer(int64), intent(in), target :: x(:,:)
    call describe(a, i64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int64_3(x) result(a)
    integer(int64), intent(in), target :: x(:,:,:)
    call describe(a, i64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int64_4(x) result(a)
    integer(int64), intent(in), target :: x(:,:,:,:)
    call describe(a, i64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
  type(tandem_array_t) function array_int64_5(x) result(a)
    integer(int64), intent(in), target :: x(:,:,:,:,:)
    call describe(a, i64, shape(x, int64), c_loc(x))
    if (is_contiguous(x) .or. size(x) == 0) return
    if (size(x,1) > 1) call stride(a, 1, c_loc(x(2,1,1,1,1)), storage_size(x)/8)
    if (size(x,2) > 1) call stride(a, 2, c_loc(x(1,2,1,1,1)), storage_size(x)/8)
    if (size(x,3) > 1) call stride(a, 3, c_loc(x(1,1,2,1,1)), storage_size(x)/8)
    if (size(x,4) > 1) call stride(a, 4, c_loc(x(1,1,1,2,1)), storage_size(x)/8)
    if (size(x,5) > 1) call stride(a, 5, c_loc(x(1,1,1,1,2)), storage_size(x)/8)
    call fill(a)
  end function
end module
